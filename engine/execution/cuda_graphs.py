"""Capture of launches on a GPU (CUDA C++ Programming Guide, "CUDA Graphs")."""

from contextlib import suppress

import torch

from loragate.engine.execution.step_graphs import Launches


class GraphMemoryExceeded(RuntimeError):
    """Captured graphs took more of the device's memory than their budget."""


class CudaGraphs:
    """Captures graphs that share one memory pool for intermediate results, of up to `budget` bytes.

    No two of them may run at once.
    """

    def __init__(self, device: torch.device, budget: int) -> None:
        self._device = device
        self._budget = budget
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        torch.cuda.empty_cache()  # every capture begins with an empty cache, so that the cache does not count
        self._free = torch.cuda.mem_get_info(device)[0]

    def record(self, launches: Launches) -> Launches:
        """Capture launches as a graph.

        Raise RuntimeError if they wait for the device or allocate on the host's behalf, or if the budget is exceeded.
        Other threads may use the device meanwhile; this thread must not compute anything else.
        """
        taken = self._free - torch.cuda.mem_get_info(self._device)[0]
        if taken > self._budget:
            raise GraphMemoryExceeded(f"recordings took {taken >> 20} MB of the device, more than {self._budget >> 20}")
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):  # so that kernels are compiled and libraries are initialized
            launches()
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                launches()
        except RuntimeError as error:
            self._give_up()
            torch.cuda.set_stream(before)  # torch leaves the capture's stream only after an end that did not fail
            # the error at the end of a capture only says that it was already broken
            raise error.__context__ or error from None
        torch.cuda.synchronize(self._device)
        return graph.replay

    def _give_up(self) -> None:
        """End a failed capture.

        If the end of a capture fails, torch continues as if it were under way, and an allocation that runs out of
        memory could not use the cache (`CUDAGraph::capture_end`, ATen/cuda/CUDAGraph.cpp).
        """
        with suppress(RuntimeError, AttributeError):  # the capture did end
            torch._C._cuda_endAllocateToPool(self._device.index or 0, self._pool)
