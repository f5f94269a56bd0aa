"""Greedy output equals PEFT's token for token, for all architectures, neighbours, ranks and slots."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from scored_prompts import check, scored_prompt
from thinned import thinned
from tiny_models import CONFIGS, VOCABULARY, add_adapter, final_states, greedy, make_model, prompt_logprobs
from transformers import PreTrainedModel

from loragate.engine.local import LocalEngine
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.request import Share

RANKS = {"r4": 4, "r8": 8, "r64": 64, "r8b": 8}
NEW_TOKENS = 10
ROUNDING = 5e-4  # of float32 in models whose weights are so large; wrong weights change logprobs by 0.1 and more

Case = tuple[PreTrainedModel, dict[str, Path], LocalEngine]


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A model, its adapters, and an engine with fewer slots than adapters and a cache that forces preemption."""
    root = tmp_path_factory.mktemp(request.param)
    model = make_model(request.param)
    model.save_pretrained(root / "base")
    adapters = {name: add_adapter(model, root / name, seed, r=rank) for seed, (name, rank) in enumerate(RANKS.items())}
    engine = LocalEngine(
        root / "base",
        root / "cache",
        adapters,
        threads=1,
        adapter_slots=2,
        max_batch_tokens=48,
        max_batch_size=6,
        block_size=8,
        kv_cache_tokens=328,
    )
    yield model, adapters, engine
    engine.close()


def some(*architectures: str) -> pytest.MarkDecorator:
    """Leave what other architectures do in the same way to the long tests."""
    return pytest.mark.parametrize("case", thinned(sorted(CONFIGS), architectures), indirect=True, scope="module")


def _prompts(count: int) -> list[list[int]]:
    rng = random.Random(5)
    lengths = [1, 2, 300, *(rng.randint(3, 120) for _ in range(count - 3))]
    return [[rng.randrange(VOCABULARY) for _ in range(length)] for length in lengths]


def test_a_mixed_batch_equals_peft(case: Case) -> None:
    model, adapters, engine = case
    prompts = _prompts(14)
    names = [[None, *adapters][i % 5] for i in range(len(prompts))]
    requests = []
    for i, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
        requests.append(engine.submit(prompt, name, max_tokens=NEW_TOKENS + i % 3))
        if i % 4 == 3:  # others join while these run
            engine.wait_for(requests[i - 3], 2)
    for i, (request, prompt, name) in enumerate(zip(requests, prompts, names, strict=True)):
        engine.result(request)
        found = engine.tokens(request)
        expected = greedy(model, prompt, NEW_TOKENS + i % 3, name and adapters[name], draft=found)
        assert found == expected, (name, len(prompt))
    assert engine.core.adapters.counters.evictions > 0, "more adapters than slots were to page"


@some("llama")
def test_a_draft_changes_no_token_of_the_oracle(case: Case) -> None:
    """The other tests give it the engine's tokens as a draft."""
    model, adapters, _ = case
    for prompt in ([7], list(range(3, 60))):
        tokens = greedy(model, prompt, NEW_TOKENS, adapters["r8"])
        other = [(token + 1) % VOCABULARY for token in tokens]
        drafts = [tokens, [*tokens[:4], *other[4:]], other, tokens[:1], [*tokens[:-1], other[-1]], [*tokens, 3, 4]]
        for draft in drafts:
            assert greedy(model, prompt, NEW_TOKENS, adapters["r8"], draft) == tokens, draft


@some("llama", "gemma3_text", "mixtral")
def test_neighbours_that_leave_change_nothing(case: Case) -> None:
    model, adapters, engine = case
    prompts = _prompts(6)
    leavers = [engine.submit(p, "r64", max_tokens=100) for p in prompts[3:]]
    stayer = engine.submit(prompts[3], "r8", max_tokens=30)
    for leaver in leavers:
        engine.wait_for(leaver, 1)
        engine.abort(leaver)
    engine.result(stayer)
    found = engine.tokens(stayer)
    assert found == greedy(model, prompts[3], 30, adapters["r8"], draft=found)


@some("llama")
def test_batches_and_what_preempts_them_equal_peft(case: Case) -> None:
    model, adapters, engine = case
    prompts = _prompts(14)
    names = [[None, *adapters][i % 5] for i in range(len(prompts))]
    batch = Share("tenant", batch=True)
    lines = [engine.submit(p, name, max_tokens=20, share=batch) for p, name in zip(prompts, names, strict=True)]
    before = engine.core.scheduler.preemptions
    engine.wait_for(lines[0], 2)
    chats = [engine.submit(p, name, max_tokens=NEW_TOKENS) for p, name in zip(prompts[3:10], names[4:11], strict=True)]
    for request, prompt, name in zip(chats, prompts[3:10], names[4:11], strict=True):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(model, prompt, NEW_TOKENS, name and adapters[name], draft=found)
    for request, prompt, name in zip(lines, prompts, names, strict=True):
        engine.result(request)
        found = engine.tokens(request)
        assert found == greedy(model, prompt, 20, name and adapters[name], draft=found), (name, len(prompt))
    assert engine.core.scheduler.preemptions > before


@some("llama", "gemma3_text", "gpt2", "gpt_oss", "mixtral", "opt")
def test_embeddings_equal_peft_in_batches_with_generation(case: Case) -> None:
    model, adapters, engine = case
    prompts = _prompts(12)
    names = [[None, *adapters][i % 5] for i in range(len(prompts))]
    ways = [[None, Pooling.LAST, Pooling.MEAN, Pooling.MEAN][i % 4] for i in range(len(prompts))]
    requests = [
        engine.submit(prompt, name, pooling=way, max_tokens=NEW_TOKENS)
        for prompt, name, way in zip(prompts, names, ways, strict=True)
    ]
    for request, prompt, name, way in zip(requests, prompts, names, ways, strict=True):
        output = engine.result(request)[-1]
        adapter = name and adapters[name]
        if way is None:
            found = engine.tokens(request)
            assert found == greedy(model, prompt, NEW_TOKENS, adapter, draft=found), (name, len(prompt))
        else:
            states = final_states(model, prompt, adapter)
            expected = states[-1] if way is Pooling.LAST else states.mean(dim=0)
            vector = torch.tensor(output.embedding)
            assert (vector - expected).norm() < 1e-4 * expected.norm(), (way, name, len(prompt))


@pytest.mark.long
def test_prompt_logprobs_equal_pefts_in_batches_with_generation(case: Case) -> None:
    model, adapters, engine = case
    prompts = _prompts(8)
    names = [[None, *adapters][i % 5] for i in range(len(prompts))]
    tops = [(None, 0, 5)[i % 3] for i in range(len(prompts))]
    requests = [
        engine.submit(prompt, name, prompt_logprobs=top, max_tokens=NEW_TOKENS if top is None else i % 2)
        for i, (prompt, name, top) in enumerate(zip(prompts, names, tops, strict=True))
    ]
    for request, prompt, name, top in zip(requests, prompts, names, tops, strict=True):
        outputs, adapter = engine.result(request), name and adapters[name]
        if top is None:
            found = engine.tokens(request)
            assert found == greedy(model, prompt, NEW_TOKENS, adapter, draft=found), (name, len(prompt))
        else:
            check(scored_prompt(outputs), prompt, prompt_logprobs(model, prompt, adapter), top, ROUNDING)
