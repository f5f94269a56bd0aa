"""Recordings of launches on a GPU (CUDA C++ Programming Guide, "CUDA Graphs")."""

from contextlib import suppress

import torch

from loragate.engine.execution.step_graphs import Launches


class GraphMemoryExceeded(RuntimeError):
    """Recordings took as much of the device's memory as they may."""


class CudaGraphs:
    """Recordings that share one pool of memory for intermediate results, of up to `budget` bytes in all; no two of
    them may run at once."""

    def __init__(self, device: torch.device, budget: int) -> None:
        self._device = device
        self._budget = budget
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        torch.cuda.empty_cache()  # as every recording begins, so that it counts for none
        self._free = torch.cuda.mem_get_info(device)[0]

    def record(self, launches: Launches) -> Launches:
        """Raises RuntimeError if launches wait for the device or allocate on the host's behalf, and beyond the budget.

        Other threads may go on with the device meanwhile; nothing else may be computed on this one's behalf.
        """
        taken = self._free - torch.cuda.mem_get_info(self._device)[0]
        if taken > self._budget:
            raise GraphMemoryExceeded(f"recordings took {taken >> 20} MB of the device, more than {self._budget >> 20}")
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):  # so that kernels are compiled, and libraries have what they need
            launches()
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                launches()
        except RuntimeError as error:
            self._give_up()
            raise error.__context__ or error from None  # what ends a recording says only that it was broken before
        torch.cuda.synchronize(self._device)
        return graph.replay

    def _give_up(self) -> None:
        """Where the end of a recording fails, torch goes on as if it were under way: whoever ran out of memory would
        not get what is kept for others (`CUDAGraph::capture_end`, ATen/cuda/CUDAGraph.cpp)."""
        with suppress(RuntimeError, AttributeError):  # it did end
            torch._C._cuda_endAllocateToPool(self._device.index or 0, self._pool)
