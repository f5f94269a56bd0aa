"""NaN and infinity are found in all three formats, anywhere in the file."""

import tracemalloc
from io import BytesIO

import numpy as np
import pytest
import torch
from safetensors.torch import save

from loragate.peft_format.checks.values import check_tied, largest_values
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.plan import TiedPair
from loragate.peft_format.safetensors.header import read_header

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def check(raw: bytes) -> None:
    file = BytesIO(raw)
    largest_values(file, read_header(file, len(raw)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_finite_value_passes(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    extremes = [limits.max, limits.min, limits.tiny, limits.smallest_normal, -0.0, 0.0, 1.0, limits.eps]
    check(save({"a": torch.tensor(extremes, dtype=dtype)}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_all_half_precision_patterns_are_judged_as_torch_judges_them(dtype: torch.dtype) -> None:
    for value in torch.arange(-(1 << 15), 1 << 15, 257, dtype=torch.int16).view(dtype):
        if torch.isfinite(value):
            check(save({"a": value.reshape(1).clone()}))
        else:
            with pytest.raises(AdapterRejected):
                check(save({"a": value.reshape(1).clone()}))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 700_000, -1])
def test_the_tensor_that_is_not_finite_is_named(dtype: torch.dtype, value: float, at: int) -> None:
    bad = torch.ones(1_000, 1_001, dtype=dtype)
    bad.view(-1)[at] = value

    with pytest.raises(AdapterRejected) as caught:
        check(save({"good": torch.ones(3, dtype=dtype), "bad": bad, "other": torch.ones(3, dtype=dtype)}))

    assert caught.value.param == "adapter_model.safetensors: bad"


def test_a_file_truncated_after_its_header_was_read_is_rejected() -> None:
    raw = save({"a": torch.ones(100)})
    header = read_header(BytesIO(raw), len(raw))

    with pytest.raises(AdapterRejected, match="truncated"):
        largest_values(BytesIO(raw[:-1]), header)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 1_000_000), (1_000_000, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("wrong", [None, 0, -1])
def test_tied_tensors_are_compared_to_the_last_value(
    dtype: torch.dtype, shape: tuple[int, int], transposed: bool, wrong: int | None
) -> None:
    one = torch.arange(shape[0] * shape[1], dtype=torch.int32).remainder(251).to(dtype).reshape(shape)
    two = (one.T if transposed else one).contiguous().clone()
    if wrong is not None:
        two.view(-1)[wrong] += 1
    raw = save({"one": one, "two": two})
    file = BytesIO(raw)
    tensors = read_header(file, len(raw)).tensors
    pair = TiedPair(tensors["one"], tensors["two"], transposed)
    if wrong is None:
        check_tied(file, [pair])
    else:
        with pytest.raises(AdapterRejected, match="differs"):
            check_tied(file, [pair])


@pytest.mark.parametrize("transposed", [True, False])
def test_comparing_tied_tensors_takes_little_memory(transposed: bool) -> None:
    one = torch.zeros(4, 2_000_000)
    raw = save({"one": one, "two": (one.T if transposed else one).contiguous().clone()})
    file = BytesIO(raw)
    tensors = read_header(file, len(raw)).tensors
    tracemalloc.start()
    try:
        check_tied(file, [TiedPair(tensors["one"], tensors["two"], transposed)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20, "one of the tensors has 32 MB"
