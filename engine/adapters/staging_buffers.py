"""Transfers from pageable host memory to the device through a few page-locked buffers.

Only page-locked memory is copied while the device computes. Locking all host memory of adapters would take it from the
rest of the machine permanently, and locking or unlocking parts of it delays steps that run at the same time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from loragate.engine.runtime.copy_stream import CopyStream, CudaCopyStream, Event, HostCopyStream

BUFFER = 4 << 20  # bytes; with adapters of rank 16 on all linears, a layer of an 8B model takes some 3 MB
_BUFFERS = 4  # one is filled while others are in transfer; also the maximum number queued


class Staging:
    """A ring of page-locked buffers. Not thread-safe."""

    def __init__(self, stream: CopyStream, buffers: Sequence[Tensor]) -> None:
        self.stream = stream
        self.size = buffers[0].nbytes
        self._buffers = buffers
        self._copied: list[Event | None] = [None] * len(buffers)
        self._next = 0

    @classmethod
    def on(cls, device: torch.device) -> "Staging":
        cuda = device.type == "cuda"
        buffers = [torch.empty(BUFFER, dtype=torch.uint8, pin_memory=cuda) for _ in range(_BUFFERS)]
        return cls(CudaCopyStream(device) if cuda else HostCopyStream(), buffers)

    def send(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        """Copy `source` [bytes], at most a buffer's size, to the targets as `CopyStream.copy` does.

        Waits until a buffer is free. The source may change as soon as this returns.
        """
        copied = self._copied[self._next]
        if copied is not None:
            copied.synchronize()
        buffer = self._buffers[self._next][: source.nbytes]
        buffer.copy_(source)
        self.stream.copy(buffer, targets)
        self._copied[self._next] = self.stream.record()
        self._next = (self._next + 1) % len(self._buffers)
