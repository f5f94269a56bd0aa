"""Heads for labels: the logits of transformers' classes under PEFT, many heads in one batch, beside generation."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from thinned import thinned
from tiny_models import CONFIGS, add_adapter, add_classifier, class_logits, classifier_model, greedy, make_model

from loragate.engine.layers.classifier_head import ClassifierHeads, HeadPatch
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode
from loragate.engine.sequence.pooling import PooledStates, Pooling

PROMPT = [(7 * i) % 90 + 3 for i in range(60)]
SEQ, TOKEN = "SEQ_CLS", "TOKEN_CLS"
SALT = b"salt"
FAST = {"gpt2", "gemma3_text"}
WITHOUT_TOKENS = {"gemma3_text", "olmo2", "opt"}  # transformers has no class for them
Start = Callable[..., LocalEngine]


def off(values: Any, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest logit where that is over 1."""
    return float((torch.tensor(values) - expected.flatten()).abs().max() / expected.abs().max().clamp(min=1))


@pytest.fixture
def engine_of(tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    engines = []

    def engine_of(model: Any, adapters: dict[str, Path], **config: Any) -> LocalEngine:
        model.save_pretrained(tmp_path / "base")
        settings = {"threads": 1, "block_size": 8, "kv_cache_tokens": 2048, "adapter_slots": 3} | config
        engines.append(LocalEngine(tmp_path / "base", tmp_path / "cache", adapters, **settings))
        return engines[-1]

    yield engine_of
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("architecture", thinned(sorted(CONFIGS), FAST))
def test_logits_equal_those_of_transformers(engine_of: Any, tmp_path: Path, architecture: str) -> None:
    """More adapters than slots, with different numbers of labels, in one batch with generation."""
    model = make_model(architecture)
    dora = {} if architecture in ("mixtral", "qwen3_moe", "gpt_oss") else {"use_dora": True}
    biases = {} if architecture == "gpt_oss" else {"bias": "all"}  # those of its router are rejected
    adapters = {
        "one": add_classifier(model, tmp_path / "one", 1, 1),
        "two": add_classifier(model, tmp_path / "two", 2, 2, r=4, **dora),
        "many": add_classifier(model, tmp_path / "many", 3, 77, **biases),
        "text": add_adapter(model, tmp_path / "text", 5),
    }
    each_token = architecture not in WITHOUT_TOKENS
    if each_token:
        adapters["tokens"] = add_classifier(model, tmp_path / "tokens", 4, 5, TOKEN)
    copied = {"adapter_device_bytes": 4 << 20} if architecture == "gpt2" else {}  # others are read in host memory
    engine = engine_of(model, adapters, **copied)
    assert (classifier_model(model, TOKEN, 2) is not None) is each_token
    for prompt in (PROMPT, PROMPT[:3], PROMPT[:1]):
        running = {
            name: engine.submit(
                prompt,
                name,
                pooling=Pooling.CLASSIFY_TOKENS if name == "tokens" else Pooling.CLASSIFY,
                cache_salt=SALT,
            )
            for name in adapters
            if name != "text"
        }
        text = engine.submit(prompt, "text")
        for name, request in running.items():
            found = engine.result(request)[-1].embedding
            assert off(found, class_logits(model, prompt, adapters[name])) < 1e-5, name
        engine.result(text)
        found = engine.tokens(text)
        assert found == greedy(model, prompt, 8, adapters["text"], draft=found)


@pytest.mark.parametrize("each_token", [False, True])
def test_logits_are_the_same_bits_beside_others(start: Start, tiny: Any, tmp_path: Path, each_token: bool) -> None:
    """With any neighbours and any place in the batch, as long as the prompt is cut into the same chunks."""
    adapter = add_classifier(tiny.model, tmp_path / "head", 1, 9, TOKEN if each_token else SEQ)
    other = add_classifier(tiny.model, tmp_path / "other", 2, 4)
    engine = start({**tiny.adapters, "head": adapter, "other": other})
    pooling = Pooling.CLASSIFY_TOKENS if each_token else Pooling.CLASSIFY
    alone = engine.classify(PROMPT, "head", each_token=each_token)
    assert len(alone) == 9 * (len(PROMPT) if each_token else 1)
    others = [engine.submit(PROMPT[i : i + 40], name) for i, name in enumerate([None, "b", "a"])]
    crowded = [engine.submit(PROMPT, "head", pooling=pooling) for _ in range(2)]
    others += [engine.submit(PROMPT[i:], "other", pooling=Pooling.CLASSIFY) for i in range(3)]
    assert [engine.result(request)[-1].embedding for request in crowded] == [alone, alone]
    for request in others:
        engine.result(request)
    for chunk in (16, 33):
        cut = start({"head": adapter}, max_batch_tokens=chunk, max_batch_size=8)
        assert off(cut.classify(PROMPT, "head", each_token=each_token), torch.tensor(alone)) < 1e-5


def test_a_heads_product_does_not_depend_on_the_number_of_rows() -> None:
    heads = ClassifierHeads()
    heads.put(2, HeadPatch(torch.randn(7, 300), torch.randn(7)))
    states = torch.randn(200, 300)
    whole = heads.logits(2, states)
    for rows in (1, 3, 64):
        assert torch.equal(torch.cat([heads.logits(2, part) for part in states.split(rows)]), whole)


def test_a_prefix_is_shared_with_text_of_the_same_adapter_alone(start: Start, tiny: Any, tmp_path: Path) -> None:
    head = add_classifier(tiny.model, tmp_path / "head", 1, 3)
    tokens = add_classifier(tiny.model, tmp_path / "tokens", 1, 3, TOKEN)
    engine = start({**tiny.adapters, "head": head, "tokens": tokens})
    cached = []
    for name, pooling in (("head", Pooling.CLASSIFY), ("head", Pooling.CLASSIFY), ("tokens", Pooling.CLASSIFY_TOKENS)):
        (output,) = engine.result(engine.submit(PROMPT, name, pooling=pooling, cache_salt=SALT))
        assert off(output.embedding, class_logits(tiny.model, PROMPT, head if name == "head" else tokens)) < 1e-5
        cached.append(output.cached_tokens)
    assert cached == [0, 56, 0]


@pytest.mark.parametrize(
    ("adapter", "pooling", "word"),
    [
        ("head", None, "generates no text"),
        ("a", Pooling.CLASSIFY, "no head"),
        (None, Pooling.CLASSIFY, "no head"),
        ("wide", Pooling.CLASSIFY_TOKENS, "logits"),
    ],
)
def test_what_a_head_cannot_do_fails_only_its_own_request(
    start: Start, tiny: Any, tmp_path: Path, adapter: str | None, pooling: Pooling | None, word: str
) -> None:
    head = add_classifier(tiny.model, tmp_path / "head", 1, 3)
    wide = add_classifier(tiny.model, tmp_path / "wide", 1, 20_000, TOKEN)
    engine = start({**tiny.adapters, "head": head, "wide": wide}, max_full_weight_bytes=4 << 20)
    bad = engine.submit(PROMPT, adapter, pooling=pooling)
    good = engine.submit(PROMPT, "head", pooling=Pooling.CLASSIFY)
    (failed,) = engine.result(bad)
    assert failed.error is not None
    assert failed.error.code is ErrorCode.INVALID_REQUEST
    assert word in failed.error.message
    assert off(engine.result(good)[-1].embedding, class_logits(tiny.model, PROMPT, head)) < 1e-5
    assert engine.core.blocks.used == 0


def test_a_head_that_overflows_fails_only_its_own_request(start: Start, tiny: Any, tmp_path: Path) -> None:
    huge = add_classifier(tiny.model, tmp_path / "huge", 1, 3)
    head = add_classifier(tiny.model, tmp_path / "head", 2, 3)
    file = huge / "adapter_model.safetensors"
    save_file({k: v * 3e38 if "score" in k else v for k, v in load_file(file).items()}, file)
    engine = start({"huge": huge, "head": head})
    bad, good = (engine.submit(PROMPT, name, pooling=Pooling.CLASSIFY) for name in ("huge", "head"))
    (failed,) = engine.result(bad)
    assert failed.error is not None
    assert failed.error.code is ErrorCode.NON_FINITE
    assert off(engine.result(good)[-1].embedding, class_logits(tiny.model, PROMPT, head)) < 1e-5


def test_rows_that_restart() -> None:
    rows = torch.arange(12.0).view(6, 2)
    pooled = PooledStates(Pooling.CLASSIFY_TOKENS, 6)
    pooled.add(rows[:4] + 100, 0)
    pooled.add(rows[:3], 0)
    pooled.add(rows[3:] + 100, 3)  # that step ran out of memory
    pooled.add(rows[3:], 3)
    assert pooled.result().tolist() == rows.flatten().tolist()
