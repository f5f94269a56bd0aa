"""Settings of the interpreter: the garbage collector, which stops every thread while it runs, and thread switching."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage within the block, which imports libraries.

    Imports create objects that stay. Scanning them again and again takes a fifth of the time of importing torch and
    transformers.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def freeze_objects() -> None:
    """Exclude all existing objects from garbage collection.

    torch, transformers and a model are half a million objects, a gateway's libraries nearly as many. A full collection
    takes 0.3 s, in which no request gets a token, and happens at some moment during serving. They stay excluded when
    the process ends: Python would spend up to two seconds on freeing them one by one.
    """
    gc.collect()
    gc.freeze()


def collect_less_often() -> None:
    """Collect less often, for a process that creates thousands of short-lived objects and hardly any cycles.

    With Python's thresholds a collection happens in the middle of a burst and promotes the objects in use to the old
    generation, so that it soon scans everything again: with a thousand streams 0.2 s, every nine seconds.
    """
    gc.set_threshold(20_000, 20, 20)


_SECONDS = 0.0005  # a tenth of Python's default


def shorten_switch_interval() -> None:
    """Shorten the switch interval, for a process whose main loop must not be delayed by its other threads.

    After each call that releases the interpreter, the loop may have to wait this long to get it back.
    """
    sys.setswitchinterval(_SECONDS)
