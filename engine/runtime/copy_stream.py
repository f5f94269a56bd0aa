"""Copies to the device that run beside the computation: on a stream of their own, with events to order the two where
necessary (CUDA C++ Programming Guide, "Streams", "Events")."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import torch
from torch import Tensor


class Event(Protocol):
    """A point after everything that was submitted to a stream before."""

    def synchronize(self) -> None:
        """Wait until everything before it is done; other threads continue."""
        ...


class Stream(Protocol):
    """Executes operations in the order of submission, asynchronously. Callers do not wait."""

    def wait(self, event: Event) -> None:
        """Run later operations after the event of another stream."""
        ...

    def record(self) -> Event: ...


class CopyStream(Stream, Protocol):
    """A stream of copies."""

    def copy(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        """Copy the bytes of `source` to the targets, which are consecutive parts of it.

        The caller keeps both alive until the copy is done.
        """
        ...


Mark = Callable[[], Event | None]
"""Returns an event after everything that the calling thread launched, or None where launches are synchronous."""


class CudaComputeStream:
    """The stream on which the calling thread launches a GPU's computations."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def wait(self, event: Event) -> None:
        assert isinstance(event, torch.cuda.Event)
        torch.cuda.current_stream(self._device).wait_event(event)

    def record(self) -> Event:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event


class CudaCopyStream:
    """A stream of a GPU. Its copies overlap with computation if the memory of the host is page-locked."""

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
        event = torch.cuda.Event(blocking=True)  # waiting threads sleep instead of taking a core from others
        event.record(self._stream)
        return event


class HostCopyStream:
    """A stream of a CPU, whose copies are synchronous."""

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


def event_marker(device: torch.device) -> Mark:
    """Return a function that marks the computation on the device."""
    return CudaComputeStream(device).record if device.type == "cuda" else lambda: None


def aside(device: torch.device) -> AbstractContextManager[object]:
    """Run the calling thread's device work outside the stream of the steps, which do not wait for it.

    It may only read data that has been on the device for a while.
    """
    return torch.cuda.stream(_beside_steps(device)) if device.type == "cuda" else nullcontext()


@cache
def _beside_steps(device: torch.device) -> torch.cuda.Stream:
    """Return a single stream, because torch keeps freed memory for the stream that used it."""
    return torch.cuda.Stream(device)


def _parts(source: Tensor, targets: Sequence[Tensor]) -> Sequence[Tensor]:
    parts: Sequence[Tensor] = source.split([target.nbytes for target in targets])
    return parts
