"""A captured step that computes something else than its launches is discarded when the engine starts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import greedy, make_model
from torch.utils._python_dispatch import TorchDispatchMode

from loragate.engine.execution.packing import PackedRows, decode_first
from loragate.engine.execution.padded_step import PaddedShape, sizes
from loragate.engine.layers.forward_context import StepBatch
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.startup import recorded_steps, recording_check


def test_a_recording_that_reads_freed_memory_is_discarded(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The numbers of its rows are taken for freed memory, so that all rows get the logits of the first."""
    freed, batch = [], PaddedShape.batch

    def with_freed_rows(shape: PaddedShape, *args: Any, **kwargs: Any) -> StepBatch:
        made = batch(shape, *args, **kwargs)
        if shape.rows == 4:
            freed.append(made.logit_rows)
        return made

    monkeypatch.setattr(PaddedShape, "batch", with_freed_rows)
    monkeypatch.setattr(recording_check, "overwrite_free_memory", lambda device: [each.zero_() for each in freed])
    monkeypatch.setattr(recorded_steps, "recorder", lambda device: lambda launches: launches)
    small: dict[str, Any] = {"threads": 1, "max_batch_tokens": 24, "max_batch_size": 5, "block_size": 8}
    engine = LocalEngine(tiny.base, tmp_path, tiny.adapters, kv_cache_tokens=256, max_model_len=100, **small)
    try:
        graphs = engine.core._runner.graphs
        assert graphs is not None
        assert {shape.rows for shape, _ in graphs.recordings} == set(sizes(24, 5)) - {4}
        assert (graphs.counters.recorded, graphs.counters.failed) == (2 * len(sizes(24, 5)) - 2, 2)
        logged = [record.getMessage() for record in caplog.records if "is discarded" in record.getMessage()]
        assert [each.split(" is ")[0] for each in logged] == [
            "the recording of steps of 4 rows with adapters",
            "the recording of steps of 4 rows without adapters",
        ]
        asked = [([9 + i, 40, 7 * i], (None, "a")[i % 2]) for i in range(4)]
        requests = [engine.submit(prompt, name, max_tokens=4) for prompt, name in asked]
        for request, (prompt, name) in zip(requests, asked, strict=True):
            engine.result(request)
            found = engine.tokens(request)
            assert found == greedy(tiny.model, prompt, 4, name and tiny.adapters[name], draft=found)
        assert engine.core.blocks.used == 0
    finally:
        engine.close()


def test_a_model_that_cannot_be_recorded_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A capture would fail with an error of CUDA, which names no cause."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    make_model("llama", rope_parameters=rope).save_pretrained(tmp_path / "base")
    recorded: list[object] = []
    monkeypatch.setattr(recorded_steps, "recorder", lambda device: recorded.append)
    engine = LocalEngine(tmp_path / "base", tmp_path / "cache", {}, threads=1, kv_cache_tokens=256, block_size=8)
    try:
        assert engine.core._runner.graphs is None
        assert not recorded
        assert "rope_type dynamic looks at positions on the host" in caplog.text
        assert len(engine.generate([5, 9], max_tokens=3)) == 3
    finally:
        engine.close()


class Allocations(TorchDispatchMode):
    """Collects the address and the size of each tensor that is made, and whether it holds anything but zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[int, int, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.made.append((result.data_ptr(), result.nbytes, bool(result.any())))
        return result


def test_free_memory_is_overwritten() -> None:
    """Its pieces are held together: one that is freed at once would be overwritten again and again."""
    with Allocations() as found:
        recording_check.overwrite_free_memory(torch.device("cpu"))
    small = {address for address, size, _ in found.made if size == 512}
    assert len(small) * 512 >= 2 << 20, "a segment of the pool of small tensors"
    assert any(size > 1 << 20 for _, size, _ in found.made), "the pool of large tensors"
    assert not any(filled for _, _, filled in found.made)


@pytest.mark.parametrize("adapted", [True, False])
@pytest.mark.parametrize("lengths", [(1,), (1, 5, 17, 40)])
@pytest.mark.parametrize(("most", "sequences"), [(512, 64), (40, 5), (16, 16), (64, 1)])
def test_steps_fill_every_size(most: int, sequences: int, lengths: tuple[int, ...], adapted: bool) -> None:
    owners = []
    for length in lengths:
        owners.append(Sequence(Request(0, 0, (5,) * length, None, SamplingParams(max_tokens=1, seed=0)), 0))
        owners[-1].places = np.arange(48)
    for rows in sizes(most, sequences):
        seats = min(rows, sequences)
        shape = PaddedShape(rows, seats, seats, 8, 64, 16, torch.float32, scratch=0)
        packed = PackedRows.from_entries(decode_first(recording_check.fill(shape, owners, adapted=adapted).items()))
        assert shape.takes(packed)
        assert len(packed.sampled) == seats
        assert packed.rows == rows or (rows > sequences and packed.rows > min(seats, lengths[-1]) // 2)
        assert (0 in packed.slots) == adapted
