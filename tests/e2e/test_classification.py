"""Classifiers through the whole stack: two tenants, the real engine beside generation, transformers as the oracle."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from running_server import ok, upload
from safetensors.torch import load_file, save_file
from tiny_models import add_classifier, class_logits
from transformers import AutoTokenizer

TEXTS = ["who is it?", "what is the capital of France? " * 10, "x"]
LABELS = {"0": "billing", "1": "technical", "2": "other"}


@pytest.fixture(scope="module")
def heads(tenants: Any, tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both tenants have a classifier of one name, with different labels."""
    root = tmp_path_factory.mktemp("heads")
    made = {
        "topics": add_classifier(tiny.model, root / "topics", 21, 3, id2label=LABELS, problem_type=None),
        "reward": add_classifier(tiny.model, root / "reward", 22, 1),
        "names": add_classifier(tiny.model, root / "names", 23, 2, "TOKEN_CLS"),
        "other": add_classifier(tiny.model, root / "other", 24, 2, id2label={"0": "globex-a", "1": "globex-b"}),
    }
    for name in ("topics", "reward", "names"):
        ok(upload(tenants.acme, name, made[name]))
    ok(upload(tenants.globex, "topics", made["other"]))
    return made


def close(values: Any) -> Any:
    return pytest.approx(values.flatten().tolist(), abs=1e-4)


def test_labels_equal_transformers_during_generation(tenants: Any, tiny: Any, heads: dict[str, Path]) -> None:
    encode = AutoTokenizer.from_pretrained(tiny.base).encode
    with ThreadPoolExecutor(3) as pool:
        body = {"prompt": "who", "max_tokens": 100}
        busy = [pool.submit(tenants.acme.post, "/v1/completions", json={"model": m, **body}) for m in ("a", "b")]
        for tenant, adapter, labels in (
            (tenants.acme, "topics", list(LABELS.values())),
            (tenants.globex, "other", ["globex-a", "globex-b"]),
        ):
            answer = ok(tenant.post("/v1/classify", json={"model": "topics", "input": TEXTS}))
            assert answer["labels"] == labels
            for item, text in zip(answer["data"], TEXTS, strict=True):
                expected = class_logits(tiny.model, encode(text), heads[adapter]).softmax(dim=-1)
                assert item["probs"] == close(expected)
                assert item["label"] == labels[int(expected.argmax())]
        assert all(ok(each.result())["usage"]["completion_tokens"] for each in busy)


def test_tokens_and_rankings_equal_transformers(tenants: Any, tiny: Any, heads: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.base)
    (item,) = ok(tenants.acme.post("/v1/classify", json={"model": "names", "input": TEXTS[1]}))["data"]
    expected = class_logits(tiny.model, tokenizer.encode(TEXTS[1]), heads["names"]).softmax(dim=-1)
    assert torch.tensor([token["probs"] for token in item["tokens"]]).flatten().tolist() == close(expected)

    documents = ["a star", "the capital of France", "the sea"]
    body = {"model": "reward", "query": TEXTS[0], "documents": documents, "use_activation": False}
    ranked = ok(tenants.acme.post("/v1/rerank", json=body))["results"]
    pairs = [tokenizer(TEXTS[0], document)["input_ids"] for document in documents]
    scores = [class_logits(tiny.model, pair, heads["reward"]).item() for pair in pairs]
    assert [item["index"] for item in ranked] == sorted(range(3), key=lambda index: -scores[index])
    assert [item["relevance_score"] for item in ranked] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)


def test_a_head_is_of_its_tenant_alone(tenants: Any, heads: dict[str, Path]) -> None:
    response = tenants.globex.post("/v1/classify", json={"model": "reward", "input": "x"})
    assert response.status_code == 404
    response = tenants.acme.post("/v1/chat/completions", json={"model": "topics", "messages": []})
    assert response.status_code == 400


def test_a_head_that_overflows_is_not_published(tenants: Any, tiny: Any, tmp_path: Path) -> None:

    huge = add_classifier(tiny.model, tmp_path / "huge", 25, 3)
    file = huge / "adapter_model.safetensors"
    save_file({name: t * 3e38 if "score" in name else t for name, t in load_file(file).items()}, file)
    response = upload(tenants.acme, "huge", huge)
    assert response.status_code == 400
    assert tenants.acme.post("/v1/classify", json={"model": "huge", "input": "x"}).status_code == 404
