"""Rows whose last bits do not depend on the batch, with libraries whose results do (see `simulated_gpu`)."""

from collections.abc import Iterator
from typing import Any

import pytest
import simulated_gpu
import torch
from tiny_models import greedy
from torch import Tensor

from loragate.engine.execution import model_runner
from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.local import LocalEngine
from loragate.engine.runtime import copy_stream
from loragate.kernels import packed_linear
from loragate.kernels.segments import LONG

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")

PROMPT = [5, 9, 13, 21] * 5


@pytest.fixture(params=[True, False], ids=["recorded", "launched"])
def engine(tiny: Any, tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    with pytest.MonkeyPatch.context() as patch:
        simulated_gpu.install(patch)
        patch.setattr(packed_linear, "_can_pack", lambda *_: False)
        small: dict[str, Any] = {"threads": 1, "max_batch_tokens": 100, "max_batch_size": 5, "block_size": 8}
        engine = LocalEngine(
            tiny.base,
            tmp_path,
            tiny.adapters,
            device="cuda",
            batch_invariant="on",
            cuda_graphs=request.param,
            kv_cache_tokens=256,
            max_model_len=120,
            **small,
        )
        yield engine
        engine.close()
    copy_stream._beside_steps.cache_clear()


def test_all_products_have_the_same_number_of_rows(
    engine: LocalEngine, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all sizes of a step: cuBLAS chooses the order of sums by it."""
    asked = [(PROMPT[i:], 3 + i) for i in range(3)]
    expected = [greedy(tiny.model, prompt, count, tiny.adapters["a"]) for prompt, count in asked]
    sizes, linear = set(), packed_linear.F.linear

    def counted(x: Tensor, *weights: Tensor) -> Tensor:
        sizes.add(x.shape[0])
        return linear(x, *weights)

    monkeypatch.setattr(packed_linear.F, "linear", counted)
    requests = [engine.submit(prompt, "a", max_tokens=count) for prompt, count in asked]
    for request, tokens in zip(requests, expected, strict=True):
        engine.result(request)
        assert engine.tokens(request) == tokens
    assert sizes == {packed_linear.BLOCK_ROWS}
    assert engine.core.graphs.replayed if engine.core._runner.graphs else True


def test_launched_steps_have_no_kernels_of_their_own_for_single_tokens_or_long_segments(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[StepBatch] = []
    build = model_runner.build_batch
    monkeypatch.setattr(model_runner, "build_batch", lambda *a, **o: batches.append(build(*a, **o)) or batches[-1])
    if engine.core._runner.graphs is not None:
        monkeypatch.setattr(engine.core._runner, "graphs", None)
    engine.result(engine.submit([7] * 90, "a", max_tokens=3))
    assert [batch.rows for batch in batches] == [90, 1, 1]
    for batch in batches:
        assert batch.decode is None
        assert isinstance(batch.segments, tuple)
        assert max(segment.stop - segment.start for segment in batch.segments) < LONG
