"""A worker's classifiers: from labelled lines to an adapter that a request to classify can name."""

import json
from typing import Any

import pytest

from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.peft_format.classification import Classifier, ProblemType, Task
from tests.finetune.worker_world import World, ended


def topics(count: int, labels: tuple[Any, ...] = ("fox", "dog")) -> list[Any]:
    return [{"text": f"the {'lazy dog' if n % 2 else 'brown fox'} {n}", "label": labels[n % 2]} for n in range(count)]


async def classified(world: World, *rows: Any, valid: list[Any] | None = None, **chosen: Any) -> Job:
    named = None if valid is None else await world.file(*valid)
    job = await world.job(await world.file(*rows), valid=named, method="classify", quantization="none", **chosen)
    async with world.working():
        return await world.until(job, ended)


@pytest.mark.long
async def test_from_labelled_lines_to_an_evaluated_classifier(world: World) -> None:
    """Two examples of each class are held out; a class of one example is only trained on."""
    done = await classified(world, *topics(40), {"text": "a cat", "label": "cat"}, n_epochs=1, batch_size=8)
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    assert done.steps == done.step == 5  # 37 are trained on, in steps of 8
    evaluation = dict(done.evaluation or {})
    assert (evaluation["problem_type"], evaluation["examples"]) == ("single_label_classification", 4)
    assert [each["label"] for each in evaluation["labels"]] == ["cat", "dog", "fox"]
    assert sum(map(sum, evaluation["confusion_matrix"])) == 4
    messages = await world.messages(done)
    assert "There are 3 classes: 'cat' (1), 'dog' (20), 'fox' (20)." in messages
    assert "4 examples are held out: the result is evaluated on them." in messages
    assert "None of the examples that are held out is of 'cat'." in messages
    assert any(message.startswith("The result on the 4 validation examples: accuracy=") for message in messages)
    metrics = [event.data for event in await world.events(done) if "valid_loss" in event.data]
    assert metrics
    assert all({"valid_accuracy", "valid_macro_f1"} <= each.keys() for each in metrics)
    async with world.store.tenant(world.tenant.id) as scope:
        adapter = await scope.adapters.get(f"poet-{done.id[-8:]}")
        version = await scope.adapters.version(adapter.name, adapter.latest_version)
        checkpoints = (await scope.jobs.checkpoints(done.id)).items
    assert version.classifier == Classifier(Task.SEQUENCE, ("cat", "dog", "fox"), ProblemType.SINGLE_LABEL)
    assert version.lineage.source == done.id
    assert "valid_accuracy" in version.lineage.evaluation
    assert all("valid_macro_f1" in each.metrics for each in checkpoints)
    (facts,) = (world.config.workspace / "tokens").glob("*/*/*/facts.json")
    tokens = json.loads(facts.read_text())["tokens"]
    assert 36 / 41 * tokens < (done.trained_tokens or 0) < 38 / 41 * tokens, "what is held out is not trained on"


async def test_labels_that_cannot_be_learned_are_rejected(world: World) -> None:
    done = await classified(world, *topics(12), valid=[{"text": "fox", "label": "wolf"}])
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("invalid_validation_file", "validation_file")
    assert done.error.message == "Line 1: Invalid 'label': no example of the training file has this label."
    done = await classified(world, *topics(12, ("fox", "fox")))
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("invalid_training_file", "training_file")
    assert "at least two classes" in done.error.message


@pytest.mark.long
async def test_a_validation_file_is_what_the_result_is_evaluated_on(world: World) -> None:
    done = await classified(world, *topics(12), valid=[{"text": "fox", "label": "fox"}], n_epochs=1)
    assert (done.evaluation or {})["examples"] == 1
    assert "The validation file has no example of 'dog'." in await world.messages(done)
