"""Times of launches on the device, between two events.

Single launches alternate between several sets of data, so that none is in the L2 cache.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.cases import Setting

Figures = dict[str, Any]

_LAUNCHES_PER_GRAPH = 20
_CACHE_MULTIPLE = 4  # bytes between two reads of the same weights, in multiples of the L2 cache
_MAX_SETS = 64
_WARM_UP_CYCLES = 1_000_000  # half a millisecond of device work, during which the host launches the timed kernels


def replayed(setting: Setting, function: Callable[[], None]) -> Callable[[], None]:
    """Return the function as a CUDA graph if there is a GPU."""
    if not setting.on_gpu:
        return function
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    replay: Callable[[], None] = graph.replay
    return replay


def graph_microseconds(setting: Setting, *functions: Callable[[], object]) -> float:
    """Return the microseconds of one call, from alternating calls in one graph, which excludes the launch overhead."""
    times = max(_LAUNCHES_PER_GRAPH, len(functions)) if setting.on_gpu else 1

    def repeat() -> None:
        for turn in range(times):
            functions[turn % len(functions)]()

    return round(microseconds(setting, replayed(setting, repeat)) / times, 2)


def copies(setting: Setting, size: int) -> int:
    """Return how many sets of `size` bytes must alternate so that none is in the L2 cache; at most _MAX_SETS."""
    if not setting.on_gpu:
        return 1
    cache: int = torch.cuda.get_device_properties(setting.device).L2_cache_size
    return max(1, min(_MAX_SETS, -(-_CACHE_MULTIPLE * cache // size)))


def in_cache(setting: Setting, size: int) -> bool:
    """Return whether launches over `size` bytes in turn read from the L2 cache, so that they are faster than served
    ones."""
    return setting.on_gpu and size < _CACHE_MULTIPLE * torch.cuda.get_device_properties(setting.device).L2_cache_size


def launch_figures(us: float, moved: int, flops: int, bandwidth: float) -> Figures:
    """Return a launch's time, the bytes that it must read and write, its operations, and its share of the bandwidth."""
    return {
        "us": us,
        "moved_bytes": moved,
        "flops": flops,
        "of_bandwidth": round(moved / (us * 1e-6) / bandwidth, 3),
    }


def microseconds(setting: Setting, function: Callable[[], object]) -> float:
    """Return the median over runs, after a few warm-up runs."""
    runs, warm = (60, 10) if setting.on_gpu else (3, 1)
    took = [_timed(setting, function) for _ in range(runs)]
    return round(statistics.median(took[warm:]), 1)


def _timed(setting: Setting, function: Callable[[], object]) -> float:
    """Return the microseconds on the device, or on the host without a GPU."""
    if not setting.on_gpu:
        began = time.perf_counter()
        function()
        return 1e6 * (time.perf_counter() - began)
    began_at, ended_at = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_WARM_UP_CYCLES)
    began_at.record()
    function()
    ended_at.record()
    ended_at.synchronize()
    milliseconds: float = began_at.elapsed_time(ended_at)
    return 1e3 * milliseconds


def matmul_speed(setting: Setting) -> float:
    """Return the TFLOP/s of torch's product of two large matrices."""
    side = setting.sizes.prefill_rows * 8
    a, b = (setting.numbers(side, side, dtype=setting.dtype) for _ in range(2))
    return round(2 * side**3 / microseconds(setting, lambda: torch.mm(a, b)) / 1e6, 2)


def bandwidth(setting: Setting) -> float:
    """Return the bytes per second that a large copy reads and writes."""
    source = torch.ones(setting.sizes.copied_bytes, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (microseconds(setting, lambda: target.copy_(source)) * 1e-6)
