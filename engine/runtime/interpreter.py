"""Python's garbage collector, which stops every thread while it looks at what it knows."""

import atexit
import gc
import sys


def keep_for_good() -> None:
    """What is there now is never looked at again.

    torch, transformers and a model are half a million objects, a gateway's libraries nearly as many; a full collection
    takes 0.3 s, in which nobody gets a token, and comes at some moment of serving.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or libraries complain of leaks when the process ends


def collect_seldom() -> None:
    """For a process whose objects come and go by the thousand, and hardly ever in cycles.

    With Python's thresholds a collection comes in the middle of a burst of them and takes those in flight for old ones;
    soon it looks at everything again: with a thousand streams 0.2 s, every nine seconds.
    """
    gc.set_threshold(20_000, 20, 20)


_SECONDS = 0.0005  # Python's own is ten times that


def switch_soon() -> None:
    """For a process whose main loop must not be held up by what its other threads compute: after each call that lets go
    of the interpreter it may have to wait for so long until it is its turn again."""
    sys.setswitchinterval(_SECONDS)
