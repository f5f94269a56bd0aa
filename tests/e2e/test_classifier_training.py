"""A classifier from labelled lines to its labels, on the demo's base model; transformers and PEFT are the oracle."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from openai import OpenAI
from peft import PeftModel
from running_server import RunningServer, ok, until
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BASE = Path(__file__).parents[2] / "demo" / "data" / "loragate-demo"
THINGS = {
    "good": ("lovely", "great", "excellent", "wonderful", "perfect", "happy", "fast", "beautiful"),
    "bad": ("awful", "broken", "terrible", "horrible", "slow", "ugly", "sad", "useless"),
    "question": ("where", "when", "who", "why", "how", "what", "which", "whose"),
}
SUBJECTS = ("the capital", "this river", "the museum", "my letter", "the train", "that song", "the garden", "our house")


def reviews(seed: int, count: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(seed)
    for _ in range(count):
        label = draw.choice(list(THINGS))
        word, subject, end = draw.choice(THINGS[label]), draw.choice(SUBJECTS), draw.choice(("", " today", " again"))
        text = f"{word} is {subject}{end}?" if label == "question" else f"{subject} is {word}{end}."
        yield {"text": text, "label": label}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(
        tmp_path_factory.mktemp("data"), "--model", str(BASE), LORAGATE_FINETUNE__ENABLED="true",
        LORAGATE_FINETUNE__NICE="1", LORAGATE_ENGINE__DTYPE="float32",
    )  # fmt: skip
    yield running
    running.stop()


@pytest.mark.long
def test_labelled_texts_become_a_classifier(server: RunningServer, tmp_path: Path) -> None:
    """It is right about nine of ten texts that it has not seen, and says what PEFT's model says."""
    key = server.add_tenant("acme")
    with OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        lines = "\n".join(map(json.dumps, reviews(1, 300))).encode()
        file = client.files.create(file=("reviews.jsonl", lines), purpose="fine-tune")
        method: Any = {"type": "classify", "classify": {"hyperparameters": {"n_epochs": 4, "max_length": 64}}}
        base = client.models.list().data[0].id
        made = client.fine_tuning.jobs.create(model=base, training_file=file.id, suffix="mood", seed=3, method=method)
        until(lambda: client.fine_tuning.jobs.retrieve(made.id).status in ("succeeded", "failed"), 500)
        job = client.fine_tuning.jobs.retrieve(made.id)
        assert job.status == "succeeded", job.error
        evaluation: Any = (job.model_extra or {})["evaluation"]
        messages = [event.message for event in client.fine_tuning.jobs.list_events(made.id, limit=100).data]
    assert evaluation["examples"] >= 28
    assert evaluation["accuracy"] >= 0.9
    assert evaluation["macro_f1"] >= 0.9
    assert [label["label"] for label in evaluation["labels"]] == sorted(THINGS)
    assert any(f"accuracy={evaluation['accuracy']:.4f}" in message for message in messages)
    fresh = list(reviews(2, 60))
    with httpx.Client(base_url=server.base_url, headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
        texts = [each["text"] for each in fresh]
        found = ok(http.post("/v1/classify", json={"model": job.fine_tuned_model, "input": texts}))
        name = f"mood-{made.id[-8:]}"
        version = ok(http.get(f"/v1/adapters/{name}"))["latest_version"]
        for each in ("adapter_config.json", "adapter_model.safetensors"):
            content = http.get(f"/v1/adapters/{name}/versions/{version}/files/{each}")
            (tmp_path / each).write_bytes(content.raise_for_status().content)
    right = [item["label"] == each["label"] for item, each in zip(found["data"], fresh, strict=True)]
    assert sum(right) >= 0.9 * len(right)
    for item, expected in zip(found["data"], probabilities(tmp_path, texts), strict=True):
        assert item["probs"] == pytest.approx(expected, abs=1e-4)


def probabilities(adapter: Path, texts: Sequence[str]) -> Iterator[list[float]]:
    base = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(THINGS), dtype=torch.float32)
    model, tokenizer = PeftModel.from_pretrained(base, adapter).eval(), AutoTokenizer.from_pretrained(BASE)
    for text in texts:
        with torch.inference_mode():
            yield model(torch.tensor([tokenizer(text)["input_ids"]])).logits[0].softmax(-1).tolist()
