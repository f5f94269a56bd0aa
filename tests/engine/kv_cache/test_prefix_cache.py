"""Prompts with a common prefix are computed once for a tenant and adapter, never shared between two, and outputs stay
the same.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from thinned import thinned
from tiny_models import VOCABULARY, add_adapter, greedy, make_model

from loragate.engine.kv_cache import prefix_cache
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.kv_cache.prefix_cache import MAX_TENANTS, PrefixCache, PrefixCounters, PrefixCounts
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence

SYSTEM = [(7 * i) % 90 + 3 for i in range(40)]  # five blocks of eight
A, B = b"salt of tenant a", b"salt of tenant b"
Start = Callable[..., LocalEngine]


class Computed:
    """Counts the tokens that went through the model."""

    def __init__(self, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = 0
        execute = engine.core._runner.execute

        def counted(rows: dict[Sequence, int]) -> Any:
            self.tokens += sum(rows.values())
            return execute(rows)

        monkeypatch.setattr(engine.core._runner, "execute", counted)


def ask(engine: LocalEngine, prompt: list[int], adapter: str | None = None, **options: Any) -> tuple[list[int], int]:
    """Return the output, and how many of the prompt's tokens were found in the cache."""
    request = engine.submit(prompt, adapter, **({"max_tokens": 6, "cache_salt": A} | options))
    outputs = engine.result(request)
    assert all(output.cached_tokens == 0 for output in outputs[1:]), "only the first output says it"
    return engine.tokens(request), outputs[0].cached_tokens


def prefix(engine: LocalEngine) -> PrefixCache:
    assert engine.core.blocks.prefix is not None
    return engine.core.blocks.prefix


def test_a_tenant_shares_only_with_itself(start: Start, tiny) -> None:
    engine = start()
    prompt = [*SYSTEM, 5, 6]
    assert ask(engine, prompt, tenant="a")[1] == 0
    assert ask(engine, [*SYSTEM, 8], tenant="a")[1] == 40
    answer, cached = ask(engine, prompt, tenant="b", cache_salt=B)
    assert cached == 0, "another tenant's prompt was found"
    assert answer == greedy(tiny.model, prompt, 6)
    stats = prefix(engine).stats()
    assert stats.tenants == {"a": PrefixCounts(83, 40, 0), "b": PrefixCounts(42, 0, 0)}
    assert stats.total == PrefixCounts(125, 40, 0)


def test_without_a_salt_nothing_is_shared(start: Start) -> None:
    engine = start()
    assert [ask(engine, SYSTEM, cache_salt=b"")[1] for _ in range(2)] == [0, 0]
    assert prefix(engine).stats().total == PrefixCounts()


def test_it_can_be_switched_off(start: Start) -> None:
    engine = start(prefix_cache=False)
    assert [ask(engine, SYSTEM)[1] for _ in range(2)] == [0, 0]


def test_the_last_token_is_computed_for_its_logits(start: Start, tiny) -> None:
    engine = start()
    for prompt, cached in ((SYSTEM, 32), ([*SYSTEM, 9], 40), (SYSTEM[:9], 8), (SYSTEM[:8], 0), (SYSTEM[:1], 0)):
        expected = greedy(tiny.model, prompt, 6)
        ask(engine, prompt)
        assert ask(engine, prompt) == (expected, cached)


def test_generated_tokens_are_found_in_the_next_turn(start: Start, tiny) -> None:
    engine = start()
    answer, _ = ask(engine, SYSTEM, "a", max_tokens=20)
    turn = [*SYSTEM, *answer, 11, 12]
    assert ask(engine, turn, "a") == (greedy(tiny.model, turn, 6, tiny.adapters["a"]), 56)


def test_a_new_version_never_reuses_the_old_ones_blocks(start: Start, tiny) -> None:
    """The alias moves from one digest to another while requests for both run."""
    engine = start(adapters={"sha256:old": tiny.adapters["a"], "sha256:new": tiny.adapters["b"]})
    truth = {digest: greedy(tiny.model, SYSTEM, 6, folder) for digest, folder in engine._adapters.items()}
    assert truth["sha256:old"] != truth["sha256:new"]
    assert ask(engine, SYSTEM, "sha256:old") == (truth["sha256:old"], 0)
    assert ask(engine, SYSTEM, "sha256:new") == (truth["sha256:new"], 0)
    assert ask(engine, SYSTEM, "sha256:old") == (truth["sha256:old"], 32)
    assert ask(engine, SYSTEM, None)[1] == 0


def test_evicted_blocks_move_to_the_host_tier_and_back(start: Start, tiny) -> None:
    engine = start(kv_cache_tokens=64, max_model_len=64, kv_host_bytes=1 << 20)
    prompts = [[*SYSTEM[i:], *SYSTEM[:i]] for i in range(6)]
    for prompt in prompts:
        ask(engine, prompt, "a")
    for prompt in prompts:
        assert ask(engine, prompt, "a") == (greedy(tiny.model, prompt, 6, tiny.adapters["a"]), 32)
    stats = prefix(engine).stats()
    assert stats.total.from_host > 0
    assert stats.device_evictions > 0
    assert 0 < stats.host_bytes_used <= stats.host_bytes <= 1 << 20


def test_the_host_tier_keeps_to_its_budget(start: Start) -> None:
    engine = start(kv_cache_tokens=64, max_model_len=64, kv_host_bytes=20_000)
    for i in range(8):
        ask(engine, [*SYSTEM[i:], *SYSTEM[:i]])
    stats = prefix(engine).stats()
    assert stats.host_evictions > 0
    assert stats.host_bytes_used <= stats.host_bytes <= 20_000
    off = start(kv_cache_tokens=64, max_model_len=64, kv_host_bytes=0)
    for i in range(8):
        ask(off, [*SYSTEM[i:], *SYSTEM[:i]])
    assert prefix(off).stats().host_bytes == prefix(off).stats().total.from_host == 0


def test_two_contents_with_one_hash_are_distinguished(start: Start, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "block_hash", lambda parent, adapter, tokens: b"the same")
    engine = start()
    for prompt, adapter, salt in ((SYSTEM, None, A), (SYSTEM[8:], None, A), (SYSTEM, "a", A), (SYSTEM, None, B)):
        answer, cached = ask(engine, prompt, adapter, cache_salt=salt)
        assert answer == greedy(tiny.model, prompt, 6, adapter and tiny.adapters[adapter])
        assert cached == 0
    assert ask(engine, SYSTEM)[1] == 8, "and the first content is still found"


def test_many_requests_with_one_system_prompt_compute_it_once(
    start: Start, tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    prompts = [[*SYSTEM, *[i] * 3] for i in range(6)]
    computed = Computed(engine, monkeypatch)
    requests = [engine.submit(prompt, "a", max_tokens=1, cache_salt=A) for prompt in prompts]
    for request, prompt in zip(requests, prompts, strict=True):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(tiny.model, prompt, 1, tiny.adapters["a"], draft=found)
    assert computed.tokens == 40 + 6 * 3


def test_n_completions_share_the_prompt(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = start(prefix_cache=False)
    engine = start()
    computed = Computed(engine, monkeypatch)
    drawn = {"n": 4, "max_tokens": 9, "temperature": 1.0, "seed": 3, "cache_salt": A}
    completions = []
    for each in (alone, engine):
        request = each.submit([*SYSTEM, 4], "a", **drawn)
        outputs = each.result(request, n=4)
        completions.append([each.tokens(request, index) for index in range(4)])
    assert completions[0] == completions[1]
    assert computed.tokens == 40 + 4 * (1 + 8)
    firsts = {o.index: o.cached_tokens for o in reversed(outputs)}
    assert firsts == {0: 0, 1: 40, 2: 40, 3: 40}
    assert engine.core.blocks.used == 0


def test_preempted_sequences_find_their_own_blocks_again(start: Start, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [([3 + i, *SYSTEM[:14]], name) for i, name in enumerate(("a", "b", None, "c"))]
    totals = []
    for salt in (b"", A):
        engine = start(kv_cache_tokens=160, max_model_len=120, kv_host_bytes=1 << 20)
        computed = Computed(engine, monkeypatch)
        requests = [engine.submit(prompt, name, max_tokens=60, cache_salt=salt) for prompt, name in asked]
        for request, (prompt, name) in zip(requests, asked, strict=True):
            engine.result(request)
            found = engine.tokens(request)
            assert found == greedy(tiny.model, prompt, 60, name and tiny.adapters[name], draft=found)
        assert engine.core.scheduler.preemptions > 0
        counted = prefix(engine).stats().total
        assert counted.from_device == counted.from_host == 0, "what it computed itself does not count as found"
        totals.append(computed.tokens)
    assert totals[1] < totals[0]


def test_blocks_of_a_failed_sequence_are_not_found_again(start: Start, tiny, tmp_path: Path) -> None:
    """The adapter's products overflow: the first chunks of a prompt are cached before any logits are seen."""
    huge = tmp_path / "huge"
    huge.mkdir()
    weights = load_file(tiny.adapters["a"] / "adapter_model.safetensors")
    save_file({k: torch.full_like(v, 3e18) for k, v in weights.items()}, huge / "adapter_model.safetensors")
    (huge / "adapter_config.json").write_text((tiny.adapters["a"] / "adapter_config.json").read_text())
    engine = start(adapters=tiny.adapters | {"huge": huge}, max_batch_tokens=16, max_batch_size=4)
    ask(engine, SYSTEM)
    known = len(prefix(engine)._known)
    for _ in range(2):
        output = engine.result(engine.submit(SYSTEM, "huge", cache_salt=A))[-1]
        assert output.error is not None
        assert output.error[0] is ErrorCode.NON_FINITE
    assert len(prefix(engine)._known) == known
    assert prefix(engine).stats().total.from_device == 0


def test_a_poisoned_block_fails_its_users_and_is_discarded(start: Start, tiny) -> None:
    """Wherever the NaN came from, neither the block nor what was computed from it is found a second time."""
    engine = start()
    ask(engine, SYSTEM)
    ask(engine, [*SYSTEM, *SYSTEM])
    prefix(engine)._host._caches[0].keys.fill_(float("nan"))
    prefix(engine)._host._caches[0].keys[:, :8] = 0  # the null block stays
    for request in [engine.submit([*SYSTEM, i], cache_salt=A) for i in range(3)]:
        output = engine.result(request)[-1]
        assert output.error is not None
        assert output.error[0] is ErrorCode.NON_FINITE
    assert not prefix(engine)._known
    assert ask(engine, [*SYSTEM, 1]) == (greedy(tiny.model, [*SYSTEM, 1], 6), 0)


def test_a_failing_step_caches_nothing(start: Start, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    with monkeypatch.context() as patch:
        patch.setattr(engine.core._runner, "execute", lambda rows: 1 / 0)
        assert engine.result(engine.submit(SYSTEM, cache_salt=A))[-1].error
    assert not prefix(engine)._known
    assert ask(engine, SYSTEM) == (greedy(tiny.model, SYSTEM, 6), 0)


def test_blocks_before_the_invocation_belong_to_the_base_model() -> None:
    """They are shared by all adapters of the tenant; a block across the invocation belongs to the adapter."""
    cache = PrefixCache("base", 4, _NoHost())
    pool = BlockPool(64, 4, cache)

    def compute(adapter: str | None, adapter_from: int, salt: bytes = A) -> int:
        key = adapter and AdapterKey("t", adapter)
        request = Request(0, 0, tuple(range(21)), key or None, SamplingParams(1, 0), cache_salt=salt)
        sequence = Sequence(request, 0)
        sequence.adapter_from = adapter_from
        pool.reuse(sequence)
        assert pool.grow(sequence, 21)
        sequence.computed = 21
        pool.publish(sequence)
        pool.release(sequence)
        return sequence.cached_tokens

    assert compute(None, 0) == 0
    assert compute("x", 10) == 8, "blocks [0, 8) are the base model's, [8, 12) is x's"
    assert compute("y", 10) == 8
    assert compute("x", 10) == 20
    assert compute("x", 11) == 8, "within the block [8, 12) the point is another"
    assert compute("x", 8) == 8
    assert compute("x", 0) == 0
    assert compute("x", 10, salt=B) == 0


def test_counters_keep_the_most_recent_tenants() -> None:
    counters = PrefixCounters()
    counters.add("first", PrefixCounts(1, 0, 0))
    for i in range(MAX_TENANTS - 1):
        counters.add(str(i), PrefixCounts(1, 1, 0))
    counters.add("first", PrefixCounts(1, 0, 1))
    counters.add("one more", PrefixCounts(1, 0, 0))
    assert len(counters.tenants) == MAX_TENANTS
    assert counters.tenants["first"] == PrefixCounts(2, 0, 1)
    assert "0" not in counters.tenants
    assert counters.total.looked_up == MAX_TENANTS + 2


@pytest.fixture(params=thinned(["llama", "mistral", "gemma3_text", "gpt2"], fast={"llama", "gemma3_text"}))
def crowded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, dict[str, Path], LocalEngine]]:
    """Starts an engine with few pages, a small host tier and few slots, so that everything moves."""
    model = make_model(request.param)
    model.save_pretrained(tmp_path / "base")
    adapters = {name: add_adapter(model, tmp_path / name, i, r=4 * 2**i) for i, name in enumerate(("x", "y", "z"))}
    bounds = {"adapter_slots": 2, "max_batch_tokens": 48, "max_batch_size": 6, "block_size": 8, "kv_cache_tokens": 240}
    engine = LocalEngine(tmp_path / "base", tmp_path / "cache", adapters, threads=1, kv_host_bytes=200_000, **bounds)
    yield model, adapters, engine
    engine.close()


def test_outputs_equal_peft_through_hits_evictions_and_reloads(crowded) -> None:
    model, adapters, engine = crowded
    rng = random.Random(3)
    systems = [[rng.randrange(VOCABULARY) for _ in range(70)] for _ in range(2)]
    asked = []
    for i in range(36):
        name = [None, "x", "y", "z"][rng.randrange(4)]
        prompt = systems[rng.randrange(2)][: rng.choice((30, 33, 64, 70))] + [i % 5] * rng.randrange(4)
        asked.append((engine.submit(prompt, name, max_tokens=14, cache_salt=rng.choice((A, B))), prompt, name))
        if i % 5 == 4:
            engine.wait_for(asked[-5][0], 3)
    truth: dict[Any, list[int]] = {}
    for request, prompt, name in asked:
        engine.result(request)
        found = engine.tokens(request)
        if (tuple(prompt), name) not in truth:
            truth[tuple(prompt), name] = greedy(model, prompt, 14, name and adapters[name], draft=found)
        assert found == truth[tuple(prompt), name], (name, len(prompt))
    stats = prefix(engine).stats()
    assert stats.total.from_device > 0
    assert stats.total.from_host > 0
    assert stats.host_evictions > 0
    assert engine.core.blocks.used == 0


class _NoHost:
    total = free = used = block_bytes = 0
