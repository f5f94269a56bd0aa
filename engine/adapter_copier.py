"""Fills device pages from host memory on a thread of its own, so that the step loop never waits for a copy."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from loragate.engine.adapter_pool import Copy
from loragate.engine.patch import Patch, Patchable
from loragate.kernels.cpu.openmp import compute_alone

Copied = Callable[[Copy, dict[Patchable, Patch] | Exception], None]


class AdapterCopier:
    """`copied` is called on the copier's thread, once a copy has ended either way."""

    def __init__(self, device: torch.device, copied: Copied) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._copied = copied
        self._thread = ThreadPoolExecutor(1, "adapter-copies", compute_alone)

    def request(self, copy: Copy) -> None:
        self._thread.submit(self._run, copy)

    def close(self) -> None:
        """Wait for the copy that is running; drop those that are queued."""
        self._thread.shutdown(cancel_futures=True)

    def _run(self, copy: Copy) -> None:
        try:
            result: dict[Patchable, Patch] | Exception = self._perform(copy)
        except Exception as error:
            result = error
        self._copied(copy, result)

    def _perform(self, copy: Copy) -> dict[Patchable, Patch]:
        if self._stream is None:
            return copy.perform()
        with torch.cuda.stream(self._stream):
            patches = copy.perform()
        self._stream.synchronize()
        return patches
