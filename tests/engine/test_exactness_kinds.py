"""Greedy output equals PEFT's token for token: architectures × kinds of adapters × orders, in one mixed batch."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from scored_prompts import check, scored_prompt
from thinned import thinned
from tiny_models import (
    CONFIGS,
    LLAMA_TARGETS,
    TARGETS,
    VOCABULARY,
    add_adapter,
    greedy,
    make_model,
    prompt_logprobs,
)
from transformers import PreTrainedModel

from loragate.engine.local import LocalEngine

FAST = {"gemma3_text", "gpt2", "gpt_oss", "llama", "mixtral", "qwen3", "llama, tied"}  # architectures
NEW_TOKENS = 8
INVOCATION = [7, 3]
HALF_OF_THE_VOCABULARY = random.Random(0).sample(range(VOCABULARY), VOCABULARY // 2)


def kinds(model: PreTrainedModel) -> dict[str, dict[str, Any]]:
    """Return options of LoraConfig by the name of the kind, with this model's module names."""
    names = {module: name.rpartition(".")[2] for name, module in model.named_modules()}
    embedding, head = names[model.get_input_embeddings()], names[model.get_output_embeddings()]
    norm = next(name for module, name in reversed(names.items()) if "Norm" in type(module).__name__)
    targets = TARGETS.get(model.config.model_type, LLAMA_TARGETS)
    first, rest = targets[0], targets[1:]
    return {
        "plain": {"r": 8},
        "rank 64": {"r": 64},
        "rslora": {"use_rslora": True, "rank_pattern": {first: 4}, "alpha_pattern": {targets[1]: 5}},
        "lora_bias": {"lora_bias": True},
        "all biases": {"bias": "all", "r": 4},
        "biases of targets": {"bias": "lora_only", "r": 4},
        "dora": {"use_dora": True},
        "dora, biases": {"use_dora": True, "bias": "lora_only", "r": 4},
        "embedding": {"target_modules": [embedding, first]},
        "embedding, dora": {"target_modules": [embedding, first], "use_dora": True},
        "head": {"target_modules": [head, first]},
        "head, dora": {"target_modules": [head, first], "use_dora": True},
        "own head": {"modules_to_save": [head]},
        "own embedding": {"modules_to_save": [embedding]},
        "own norms": {"modules_to_save": [norm]},
        "own linears": {"target_modules": rest, "modules_to_save": [first]},
        "trained tokens": {"trainable_token_indices": {embedding: HALF_OF_THE_VOCABULARY}},
        "trained tokens of the head": {"trainable_token_indices": {head: HALF_OF_THE_VOCABULARY}},
        "tied tokens, head": {"target_modules": [head], "trainable_token_indices": {embedding: HALF_OF_THE_VOCABULARY}},
        "activated": {"alora_invocation_tokens": INVOCATION},
        "blocks": {"use_bdlora": {"target_modules_bd_a": rest, "target_modules_bd_b": [first], "nblocks": 2}},
    }


def bag(architecture: str, available: Mapping[str, Any]) -> list[str]:
    """Return a few kinds for each architecture; its neighbours in the list get others, so that most kinds meet."""
    names = list(available)
    offset = 3 * sorted(CONFIGS).index(architecture)
    return ["plain", *dict.fromkeys(names[(offset + 4 * i) % len(names)] for i in range(5))]


@dataclass(frozen=True)
class Case:
    """A model, adapters by kind, an engine with fewer slots than adapters, and PEFT's answers."""

    model: PreTrainedModel
    adapters: dict[str, Path]
    engine: LocalEngine
    answers: dict[tuple[str | None, tuple[int, ...]], list[int]] = field(default_factory=dict)

    def requests(self) -> list[tuple[str | None, tuple[int, ...]]]:
        """Return each adapter's name, and none for the base model, with each of its prompts."""
        return [(adapter, prompt) for adapter in (None, *self.adapters) for prompt in prompts(adapter)]

    def answer(self, adapter: str | None, prompt: tuple[int, ...], draft: Sequence[int] = ()) -> list[int]:
        if (adapter, prompt) not in self.answers:
            path = adapter and self.adapters[adapter]
            self.answers[adapter, prompt] = greedy(self.model, prompt, NEW_TOKENS, path, draft)
        return self.answers[adapter, prompt]


@pytest.fixture(scope="module", params=thinned([*sorted(CONFIGS), "llama, tied", "llama, untied"], FAST))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    architecture, _, all_kinds = request.param.partition(", ")
    root = tmp_path_factory.mktemp("kinds")
    model = make_model(architecture, **({"tie_word_embeddings": all_kinds == "tied"} if all_kinds else {}))
    if all_kinds == "tied":
        with torch.no_grad():  # otherwise the input embedding dominates the output, and every token repeats itself
            model.get_input_embeddings().weight.mul_(0.1)
    model.save_pretrained(root / "base")
    options = kinds(model)
    if all_kinds != "tied":
        del options["tied tokens, head"]
    if architecture == "gpt_oss":
        del options["all biases"]  # those of its router and experts are rejected
    chosen = list(options) if all_kinds else bag(architecture, options)
    adapters = {name: add_adapter(model, root / name, seed, **options[name]) for seed, name in enumerate(chosen)}
    engine = LocalEngine(
        root / "base",
        root / "cache",
        adapters,
        threads=1,
        adapter_slots=5,
        max_batch_tokens=48,
        max_batch_size=6,
        block_size=8,
        kv_cache_tokens=328,
    )
    yield Case(model, adapters, engine)
    engine.close()


def prompts(adapter: str | None) -> list[tuple[int, ...]]:
    """Return prompts long enough for several chunks; with aLoRA its invocation twice, at the end, and not at all."""
    rng = random.Random(adapter)
    one, other = (tuple(rng.randrange(8, VOCABULARY) for _ in range(length)) for length in (rng.randint(50, 90), 9))
    if adapter != "activated":
        return [one, other]
    return [(*one, *INVOCATION, *other, *INVOCATION, *other), (*one, *INVOCATION), one]


@pytest.mark.parametrize("order", thinned([1, 2], fast={1}))
def test_every_kind_equals_peft_in_one_batch(case: Case, order: int) -> None:
    wanted = case.requests()
    random.Random(order).shuffle(wanted)
    requests = {}
    for i, (adapter, prompt) in enumerate(wanted):
        requests[adapter, prompt] = case.engine.submit(prompt, adapter, max_tokens=NEW_TOKENS)
        if i % 4 == 3:  # others join while these run
            case.engine.wait_for(requests[wanted[i - 3]], 2)
    for which, request in requests.items():
        outputs = case.engine.result(request)
        assert outputs[-1].error is None
        found = case.engine.tokens(request)
        assert found == case.answer(*which, found), which


@pytest.mark.long
def test_prompt_logprobs_of_every_kind_equal_pefts(case: Case) -> None:
    longest = {name: prompts(name or "none")[0] for name in (None, *case.adapters)}
    requests = {
        name: case.engine.submit(prompt, name, prompt_logprobs=2, max_tokens=0) for name, prompt in longest.items()
    }
    neighbours = [case.engine.submit(prompts(name)[1], name) for name in case.adapters]
    for name, prompt in longest.items():
        found = scored_prompt(case.engine.result(requests[name]))
        expected = prompt_logprobs(case.model, prompt, name and case.adapters[name])
        check(found, prompt, expected, 2, within=5e-4)
    for neighbour in neighbours:
        case.engine.result(neighbour)


def test_every_adapter_changes_something(case: Case) -> None:
    """Otherwise the other tests would prove nothing."""
    for adapter in case.adapters:
        answers = {prompt: case.answer(adapter, prompt) for prompt in prompts(adapter)}
        distinct = [
            answer != greedy(case.model, prompt, NEW_TOKENS, draft=answer) for prompt, answer in answers.items()
        ]
        assert any(distinct), adapter
