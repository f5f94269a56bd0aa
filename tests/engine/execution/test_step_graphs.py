"""Steps of fixed sizes, replayed: on a CPU the same launches over the same memory.

The tokens equal PEFT's while other sequences join, leave and share the batch.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scored_prompts import scored_prompt
from thinned import thinned
from tiny_models import VOCABULARY, add_adapter, greedy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from loragate.engine.execution.padded_step import sizes
from loragate.engine.execution.step_graphs import GraphCounters, Launches
from loragate.engine.layers.attention import attention_state
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.startup import recorded_steps

NAMES = (None, "r4", "r64", "dora", "biased")
KINDS: dict[str, dict[str, Any]] = {
    "r4": {"r": 4},
    "r64": {"r": 64},
    "dora": {"r": 8, "use_dora": True},
    "biased": {"r": 8, "bias": "lora_only", "lora_bias": True},
    "whole": {"r": 4, "target_modules": ["q_proj", "up_proj"], "modules_to_save": ["lm_head"]},
}
SETTINGS: dict[str, Any] = {
    "threads": 1,
    "adapter_slots": 3,
    "max_batch_tokens": 40,
    "max_batch_size": 5,
    "block_size": 8,
    "kv_cache_tokens": 512,
    "max_model_len": 200,
}
Make = Callable[..., LocalEngine]


@pytest.fixture(scope="module")
def adapters(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("kinds")
    return {name: add_adapter(tiny.model, root / name, seed, **o) for seed, (name, o) in enumerate(KINDS.items())}


@pytest.fixture(scope="module")
def make(tiny: Any, adapters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Starts engines whose launches are captured by the given function: make(record, **EngineConfig fields)."""
    engines = []

    def start(record: Callable[[Launches], Launches], **config: Any) -> LocalEngine:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recorded_steps, "recorder", lambda device: record)
            engines.append(LocalEngine(tiny.base, tmp_path_factory.mktemp("cache"), adapters, **SETTINGS | config))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module", params=thinned(["off", "on"], fast={"on"}))
def engine(make: Make, request: pytest.FixtureRequest) -> LocalEngine:
    """Replays its own launches, and reads its tokens at once or late."""
    return make(lambda launches: launches, async_scheduling=request.param)


@pytest.fixture(scope="module")
def expected(tiny: Any, adapters: dict[str, Path]) -> Callable[[int, str | None, int], list[int]]:
    """Return PEFT's tokens after the prompt of that length."""
    known: dict[tuple[int, str | None], list[int]] = {}

    def tokens(length: int, name: str | None, new: int) -> list[int]:
        if (length, name) not in known:
            known[length, name] = greedy(tiny.model, prompt_of(length), 6, name and adapters[name])
        return known[length, name][:new]

    return tokens


def prompt_of(length: int) -> list[int]:
    rng = random.Random(length)
    return [rng.randrange(VOCABULARY) for _ in range(length)]


def counters(engine: LocalEngine) -> GraphCounters:
    graphs = engine.core._runner.graphs
    assert graphs is not None
    return graphs.counters


requests = st.tuples(
    st.sampled_from([1, 2, 7, 8, 9, 30, 41, 95]),  # tokens of the prompt
    st.sampled_from(NAMES),
    st.integers(1, 6),  # new tokens
    st.sampled_from([0, 1, 3]),  # tokens it has generated before the next one arrives
)


@given(st.lists(requests, min_size=1, max_size=9))
@settings(max_examples=15)
def test_tokens_equal_peft_in_any_batch(
    engine: LocalEngine, expected: Callable[[int, str | None, int], list[int]], asked: list[Any]
) -> None:
    before = counters(engine).launched
    running = []
    for length, name, new, lead in asked:
        running.append((engine.submit(prompt_of(length), name, max_tokens=new), length, name, new))
        engine.wait_for(running[-1][0], min(lead, new))
    for number, length, name, new in running:
        assert engine.result(number)[-1].error is None
        assert engine.tokens(number) == expected(length, name, new), (length, name)
    assert counters(engine).launched == before, "every step has a size"
    assert engine.core.blocks.used == 0


def test_steps_too_large_for_a_graph_run_between_others(
    engine: LocalEngine, expected: Callable[[int, str | None, int], list[int]]
) -> None:
    """Adapters with whole modules, embeddings, scored prompts and long drafts share the engine."""
    before = counters(engine).launched
    names = ("whole", "r4", None, "whole")
    running = [engine.submit(prompt_of(9), name, max_tokens=4) for name in names]
    embedding = engine.submit(prompt_of(30), "r64", pooling=Pooling.MEAN)
    scored = engine.submit(prompt_of(30), "r4", prompt_logprobs=2, max_tokens=4)
    nines = engine.submit([9] * 4, max_tokens=12, draft_tokens=6, logit_bias=((9, 100.0),))
    for number, name in zip(running, names, strict=True):
        engine.result(number)
        assert engine.tokens(number) == expected(9, name, 4), name
    assert engine.result(embedding)[-1].embedding is not None
    assert len(scored_prompt(engine.result(scored)).logprobs) == 29
    assert engine.tokens(scored) == expected(30, "r4", 4)
    engine.result(nines)
    assert engine.tokens(nines) == [9] * 12
    assert counters(engine).launched > before


def test_steps_with_long_segments_are_launched_if_their_products_are_matmuls(
    make: Make, engine: LocalEngine, expected: Callable[[int, str | None, int], list[int]]
) -> None:
    matmuls = make(lambda launches: launches, lora_gemm_rows=20)
    for each, launched in ((matmuls, 1), (engine, 0)):
        before = counters(each).launched
        for length, name in ((30, "r64"), (19, "r64"), (30, None)):
            number = each.submit(prompt_of(length), name, max_tokens=3)
            each.result(number)
            assert each.tokens(number) == expected(length, name, 3)
        assert counters(each).launched - before == launched


def test_a_failed_capture_costs_only_speed(
    make: Make, expected: Callable[[int, str | None, int], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Launches] = []

    def record(launches: Launches) -> Launches:
        if len(made) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")
        made.append(launches)
        return launches

    engine = make(record, max_step_ms=None)
    assert [r.getMessage() for r in caplog.records if "launched one by one" in r.getMessage()] == [
        "3 of 12 recordings are made, other steps launched one by one: operation not permitted when stream is capturing"
    ]
    graphs = engine.core._runner.graphs
    assert graphs is not None
    assert {shape.rows for shape, _ in graphs.recordings} == {40, 5}, (
        "single tokens, of which most steps are, come first"
    )
    running = [engine.submit(prompt_of(length), name, max_tokens=5) for length, name in ((41, "r4"), (7, None))]
    for number, length, name in zip(running, (41, 7), ("r4", None), strict=True):
        engine.result(number)
        assert engine.tokens(number) == expected(length, name, 5)
    found = counters(engine)
    assert (found.recorded, found.failed) == (3, 1)
    assert found.replayed > 0
    assert found.launched > 0


class NothingFromTheHost(TorchDispatchMode):
    """Rejects what would make a capture wait for the device, or keep one of the host's values forever."""

    REJECTED = ("_local_scalar_dense", "nonzero", "lift_fresh", "item", "_unique", "masked_select", "equal")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        masks = [i for i in args[1] or () if i is not None and i.dtype == torch.bool] if name == "index" else []
        assert not masks, f"{name} by a mask in a recording"
        assert not name.startswith(self.REJECTED), f"{name} in a recording"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("read", [lambda t: t.item(), lambda t: t[t > 0], lambda t: t + torch.tensor([1.0])])
def test_host_reads_and_device_queries_are_detected(read: Callable[[Tensor], object]) -> None:
    t = torch.ones(1)
    with pytest.raises(AssertionError, match="in a recording"), NothingFromTheHost():
        read(t)


def test_captured_code_neither_reads_the_host_nor_queries_the_device(make: Make) -> None:
    seen: list[int] = []

    def record(launches: Launches) -> Launches:
        launches()  # once to create what is created once
        with NothingFromTheHost():
            launches()
        seen.append(1)
        return launches

    engine = make(record)
    graphs = engine.core._runner.graphs
    assert graphs is not None
    assert len(seen) == 2 * len(sizes(40, 5))
    for layer in engine.loaded.base.attention_layers:
        cache = attention_state(layer.module).cache
        assert not cache.keys[:, 0].any(), "the null place was written"


@pytest.mark.parametrize(("most", "sequences"), [(1, 1), (40, 5), (512, 64), (2048, 256), (64, 64), (100, 3)])
def test_sizes_cover_the_budget_with_little_padding(most: int, sequences: int) -> None:
    found = sizes(most, sequences)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (1, most)
    assert sequences in found
    assert all(b <= max(2 * a, 32) for a, b in itertools.pairwise(found))
