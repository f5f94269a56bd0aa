"""The way from ordinary host memory to the device: through a few page-locked buffers, by turns.

Only page-locked memory is copied while the device computes. Locking all that the host keeps of adapters would take it
from everybody else for good, and locking or unlocking some of it makes steps wait that run meanwhile.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from loragate.engine.runtime.copy_stream import CopyStream, CudaCopyStream, Event, HostCopyStream

BUFFER = 4 << 20  # bytes; of adapters of rank 16 on all linears, a layer of an 8B model takes some 3 MB
_BUFFERS = 4  # one is filled while others are under way; and no more than these are ever queued


class Staging:
    """To be used from one thread."""

    def __init__(self, stream: CopyStream, buffers: Sequence[Tensor]) -> None:
        self.stream = stream
        self.size = buffers[0].nbytes
        self._buffers = buffers
        self._sent: list[Event | None] = [None] * len(buffers)
        self._turn = 0

    @classmethod
    def on(cls, device: torch.device) -> "Staging":
        cuda = device.type == "cuda"
        buffers = [torch.empty(BUFFER, dtype=torch.uint8, pin_memory=cuda) for _ in range(_BUFFERS)]
        return cls(CudaCopyStream(device) if cuda else HostCopyStream(), buffers)

    def send(self, source: Tensor, targets: Sequence[Tensor]) -> None:
        """`source` [bytes], no more than a buffer holds, to the targets, as `CopyStream.copy`. It may change as soon as
        this returns. Waits until a buffer is free."""
        sent = self._sent[self._turn]
        if sent is not None:
            sent.synchronize()
        buffer = self._buffers[self._turn][: source.nbytes]
        buffer.copy_(source)
        self.stream.copy(buffer, targets)
        self._sent[self._turn] = self.stream.record()
        self._turn = (self._turn + 1) % len(self._buffers)
