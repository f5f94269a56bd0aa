"""The number of threads may change between two steps. It changes no bit of a decode row, and no kernel keeps the old
one."""

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from attention import DIM, HEADS, VARIANTS, decode_rows, filled_cache
from skip_for_missing import skip_for_missing
from torch import Tensor

from loragate.kernels import cpu
from loragate.kernels.cpu.openmp import compute_with
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.packed_linear import PackedLinear
from loragate.kernels.paged_attention import decode_attention
from loragate.kernels.rms_norm import RmsNorm
from loragate.kernels.segmented_lora import LoraTable
from loragate.kernels.segments import segments_from

COUNTS = (1, 2, 5, 3, 1, 2)


@pytest.fixture(autouse=True)
def loops() -> Iterator[None]:
    if not cpu.available():
        skip_for_missing("OpenMP as torch's wheels bring it, for compiled loops")
    before = torch.get_num_threads()
    yield
    compute_with(before)


def same_bits(compute: Callable[[], Tensor]) -> bool:
    """Return whether the result is bitwise the same with each number of threads."""
    results = []
    for threads in COUNTS:
        compute_with(threads)
        results.append(compute())
    return all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("rows", [1, 3, 16, 40])
def test_linears(rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    linear = PackedLinear(torch.randn(340, 128, generator=generator), torch.randn(340, generator=generator))
    x = torch.randn(rows, 128, generator=generator)
    assert same_bits(lambda: linear(x))


@pytest.mark.parametrize("rows", [1, 4, 30])
def test_adapters_of_one_prepared_batch(rows: int) -> None:
    """The work of a batch is prepared once, for the number of threads at that moment."""
    generator = torch.Generator().manual_seed(rows)
    table = LoraTable(24, (40,))
    for slot, rank in enumerate((4, 8, 8, 64)):
        a, b = torch.randn(rank, 24, generator=generator), torch.randn(rank, 40, generator=generator)
        table.put(slot, LoraWeights(a, (Expand(0, rank, 0, b),), ()))
    start, x = torch.randn(rows, 40, generator=generator), torch.randn(rows, 24, generator=generator)
    segments = segments_from(sorted(row % 5 - 1 for row in range(rows)))

    def add() -> Tensor:
        out = start.clone()
        table.add(out, x, segments)
        return out

    assert same_bits(add)


@pytest.mark.parametrize("variant", VARIANTS)
def test_decode_attention(variant: str) -> None:
    cache, places, _, _ = filled_cache([1, 7, 30, 64], 8)
    query = torch.randn(HEADS, 4, DIM, generator=torch.Generator().manual_seed(1))
    assert same_bits(lambda: decode_attention(query, cache, decode_rows(places), VARIANTS[variant]))


def test_norms() -> None:
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    assert same_bits(lambda: RmsNorm(1e-6)(x, torch.ones(64)))


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="native ids are Linux's")
def test_the_ids_of_a_team() -> None:
    from loragate.kernels.cpu.team import team_ids

    for threads in COUNTS:
        compute_with(threads)
        ids = team_ids()
        assert len(set(ids)) == threads
        assert {str(each) for each in ids} <= set(os.listdir("/proc/self/task"))
