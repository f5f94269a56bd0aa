"""What brings adapters to the device beside the computation: copies on a stream of their own, and events that keep the
two in order where they must be (CUDA C++ Programming Guide, "Streams", "Events")."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """A point behind all that was given to a stream before."""

    def synchronize(self) -> None:
        """Wait until all of that is done; other threads go on."""
        ...


class CopyStream(Protocol):
    """Carries out what it is given in that order, at a time of its own. Callers wait for nothing."""

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        """The bytes of `source` to the targets, whose bytes it holds side by side. Both stay until it is done."""
        ...

    def wait(self, event: Event) -> None:
        """What is given from now on comes after the event of another stream."""
        ...

    def record(self) -> Event: ...


Mark = Callable[[], Event | None]
"""Gives an event behind all that the calling thread has launched; None where nothing is ever late."""


class CudaCopyStream:
    """Its copies overlap with computation where `source` is page-locked."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        with torch.cuda.stream(self._stream):
            for target, part in zip(targets, _parts(source, targets), strict=True):
                target.copy_(part, non_blocking=True)

    def wait(self, event: Event) -> None:
        assert isinstance(event, torch.cuda.Event)
        self._stream.wait_event(event)

    def record(self) -> Event:
        event = torch.cuda.Event(blocking=True)  # whoever waits sleeps: a thread that spins is one less for others
        event.record(self._stream)
        return event


class HostCopyStream:
    """Of a CPU, which has copied when it comes back."""

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        for target, part in zip(targets, _parts(source, targets), strict=True):
            target.copy_(part)

    def wait(self, event: Event) -> None:
        event.synchronize()

    def record(self) -> Event:
        return _Past()


class _Past:
    def synchronize(self) -> None:
        return


def mark_of(device: torch.device) -> Mark:
    """Of what is computed on the device."""
    if device.type != "cuda":
        return lambda: None

    def mark() -> Event:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    return mark


def aside(device: torch.device) -> AbstractContextManager[object]:
    """What the calling thread has the device compute meanwhile is no part of steps, which do not wait for it. It may
    read what has been there for long."""
    return torch.cuda.stream(_beside_steps(device)) if device.type == "cuda" else nullcontext()


@cache
def _beside_steps(device: torch.device) -> torch.cuda.Stream:
    """One for all: torch keeps memory that was freed for the stream that had it."""
    return torch.cuda.Stream(device)


def _parts(source: Tensor, targets: Sequence[Tensor]) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = source.split([target.nbytes for target in targets])
    return parts
