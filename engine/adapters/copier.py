"""Fills device pages from host memory on a thread and a stream of its own: neither the step loop nor what the device
computes waits for a copy."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from loragate.engine.adapters.pool import Copy
from loragate.engine.adapters.staging_buffers import Staging
from loragate.engine.layers.patch import Patch, Patchable
from loragate.kernels.cpu.openmp import compute_with

Copied = Callable[[Copy, dict[Patchable, Patch] | Exception], None]

_THREADS = 4  # that fill a buffer, of a GPU's host with cores to spare: one alone is slower than the bus


class AdapterCopier:
    """`copied` is called on the copier's thread, once a copy has ended either way."""

    def __init__(self, device: torch.device, copied: Copied, staging: Staging | None = None) -> None:
        self._staging = staging or Staging.on(device)
        self._copied = copied
        self._thread = ThreadPoolExecutor(1, "adapter-copies", compute_with, (_threads(device),))

    def request(self, copy: Copy) -> None:
        self._thread.submit(self._run, copy)

    def close(self) -> None:
        """Wait for the copy that is running; drop those that are queued."""
        self._thread.shutdown(cancel_futures=True)

    def _run(self, copy: Copy) -> None:
        try:
            result: dict[Patchable, Patch] | Exception = perform(copy, self._staging)
        except Exception as error:
            result = error
        self._copied(copy, result)


def perform(copy: Copy, staging: Staging) -> dict[Patchable, Patch]:
    """The patches as they lie on the device, once they are wholly there.

    All copies share one stream: pages of a copy that failed may be given away while what it queued is under way, for
    what comes to them next comes later.
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
