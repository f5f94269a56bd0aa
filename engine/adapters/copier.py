"""Copies adapters from host memory to device pages on a separate thread and stream.

Neither the step loop nor the device's computations wait for a copy.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from loragate.engine.adapters.slot import Copy
from loragate.engine.adapters.staging_buffers import Staging
from loragate.engine.layers.patch import Patch, Patchable
from loragate.kernels.cpu.openmp import compute_with

Copied = Callable[[Copy, dict[Patchable, Patch] | Exception], None]

_THREADS = 4  # threads that fill a buffer on a GPU's host with enough cores; a single one is slower than the bus


class AdapterCopier:
    """Runs copies one after the other. `copied` is called on the copier's thread after each copy, successful or not."""

    def __init__(self, device: torch.device, copied: Copied, staging: Staging | None = None) -> None:
        self._staging = staging or Staging.on(device)
        self._copied = copied
        self._thread = ThreadPoolExecutor(1, "adapter-copies", compute_with, (_threads(device),))

    def request(self, copy: Copy) -> None:
        self._thread.submit(self._run, copy)

    def close(self) -> None:
        """Wait for the running copy, and drop the queued ones."""
        self._thread.shutdown(cancel_futures=True)

    def _run(self, copy: Copy) -> None:
        try:
            result: dict[Patchable, Patch] | Exception = perform(copy, self._staging)
        except Exception as error:
            result = error
        self._copied(copy, result)


def perform(copy: Copy, staging: Staging) -> dict[Patchable, Patch]:
    """Copy an adapter, and return its patches once they are completely on the device.

    All copies share one stream. The pages of a failed copy may therefore be reassigned while its queued transfers are
    still under way, because transfers to their new owner come later.
    """
    for event in copy.after:
        staging.stream.wait(event)
    for source, targets in copy.pieces(staging.size):
        staging.send(source, targets)
    patches = copy.patches()
    staging.stream.record().synchronize()
    return patches


def _threads(device: torch.device) -> int:
    return _THREADS if device.type == "cuda" and (os.cpu_count() or 1) >= 2 * _THREADS else 1
