"""A second stream of the device, for launches beside those of the current one.

Fork and join are events, which a capture of the current stream turns into edges of its graph (CUDA C++ Programming
Guide, "Cross-stream Dependencies and Events").
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """Launches on it may read the current stream's tensors until `join`, and must not allocate any."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def forked(self) -> Iterator[None]:
        """Launch on this stream, after all that the current one has so far."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Let the current stream wait for this one."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
