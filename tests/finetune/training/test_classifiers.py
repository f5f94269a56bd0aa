"""Classifiers: the engine serves what was trained, micro-batches change nothing, and the metrics are right."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from thinned import thinned

from loragate.engine.local import LocalEngine
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.labels import LabelFacts, LabelKind, LabelSet
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.training.checkpoints.checkpoint import save_adapter
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.trainers.classifier_metrics import LabelMetrics, evaluate, predictions
from loragate.peft_format.classification import ProblemType
from tests.finetune.runs import EXAMPLES, RECIPES, run_training

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = replace(RECIPES[Method.CLASSIFY], quantization="none", epochs=1, lora_dropout=0.0)
LABELS = {
    ProblemType.SINGLE_LABEL: LabelFacts(LabelKind.NAME, ("up", "down"), (16, 16), (1, 2)),
    ProblemType.MULTI_LABEL: LabelFacts(LabelKind.NAMES, ("up", "down", "odd"), (16, 16, 8), (1, 2, 3)),
    ProblemType.REGRESSION: LabelFacts(LabelKind.NUMBER, ("0.0", "1.0"), (16, 16), (1, 2), scores=True),
}


def labelled(folder: Path, problem_type: ProblemType) -> TokenFile:
    """Texts that count up or down; every fourth has a further label. Some end in the token for padding."""
    draw = np.random.default_rng(0)
    with TokenFileWriter(folder) as writer:
        for number in range(EXAMPLES):
            ids = np.arange(3, 3 + draw.integers(5, 12), dtype=np.uint32)[:: -1 if number % 2 else 1]
            more = (2.0,) if problem_type is ProblemType.MULTI_LABEL and number % 4 == 0 else ()
            padded = np.append(ids, np.zeros(number % 3, np.uint32)).astype(np.uint32)
            writer.add(Sample(padded, np.zeros(len(padded), np.bool_), (float(number % 2), *more)))
        writer.finish({"labels": LABELS[problem_type].to_document()})
    return TokenFile(folder)


@pytest.mark.parametrize("problem_type", ProblemType)
def test_the_logits_of_what_is_served_are_those_of_what_was_trained(
    base: Path, tmp_path: Path, problem_type: ProblemType
) -> None:
    model, _ = run_training(
        base, labelled(tmp_path / "tokens", problem_type), tmp_path / "run", RECIPE, lambda _: None, row_tokens=256
    )
    save_adapter(model, tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert list(config["id2label"].values()) == list(LABELS[problem_type].outputs)
    assert config["problem_type"] == problem_type
    prompt = list(range(3, 14))
    with torch.no_grad():
        expected = model.eval()(torch.tensor([prompt])).logits[0]
    engine = LocalEngine(base, tmp_path / "cache", {"a": tmp_path / "adapter"}, threads=1, kv_cache_tokens=512)
    try:
        torch.testing.assert_close(torch.tensor(engine.classify(prompt, "a")), expected, rtol=0, atol=1e-4)
    finally:
        engine.close()


@pytest.mark.parametrize("problem_type", thinned(ProblemType, fast={ProblemType.MULTI_LABEL}))
def test_a_step_does_not_depend_on_how_it_is_divided(base: Path, tmp_path: Path, problem_type: ProblemType) -> None:
    """One example at a time has no padding; transformers' own losses are divided differently."""
    tokens = labelled(tmp_path / "tokens", problem_type)
    curves = []
    for row_tokens in (1, 1024):
        shown: list[Metrics] = []
        run_training(base, tokens, tmp_path / f"run{row_tokens}", RECIPE, shown.append, row_tokens=row_tokens)
        curves.append([each.train_loss for each in shown])
    assert curves[0] == pytest.approx(curves[1], rel=2e-4)
    assert curves[0][0] != pytest.approx(curves[0][-1], rel=0.01)


def test_metrics_of_classes() -> None:
    labels = LabelSet(ProblemType.SINGLE_LABEL, ("a", "b", "c", "never"))
    logits = np.eye(4)[[0, 0, 1, 1, 1, 2]]
    found = evaluate(predictions(logits, labels.problem_type), np.array([0, 0, 1, 1, 2, 0]), labels)
    assert found.confusion_matrix == [[2, 0, 1, 0], [0, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.labels is not None
    assert found.labels[0] == LabelMetrics("a", 3, 1.0, 2 / 3, pytest.approx(0.8))
    assert found.labels[1] == LabelMetrics("b", 2, 2 / 3, 1.0, pytest.approx(0.8))
    assert found.macro_f1 == pytest.approx((0.8 + 0.8 + 0) / 3), "of the labels that are there"
    many = LabelSet(ProblemType.SINGLE_LABEL, tuple(map(str, range(101))))
    assert evaluate(np.array([1]), np.array([1]), many).labels is None


def test_metrics_of_labels_that_apply_independently() -> None:
    labels = LabelSet(ProblemType.MULTI_LABEL, ("a", "b"))
    predicted = predictions(np.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 1.0]]), labels.problem_type)
    found = evaluate(predicted, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), labels)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.labels == [LabelMetrics("a", 1, 0.5, 1.0, pytest.approx(2 / 3)), LabelMetrics("b", 2, 1.0, 1.0, 1.0)]
    assert found.confusion_matrix is None


def test_metrics_of_scores() -> None:
    labels = LabelSet(ProblemType.REGRESSION, ("score",))
    found = evaluate(predictions(np.array([[1.0], [2.0], [4.0]]), labels.problem_type), np.array([1, 2, 3]), labels)
    assert found.mse == pytest.approx(1 / 3)
    assert found.pearson == pytest.approx(float(np.corrcoef([1, 2, 4], [1, 2, 3])[0, 1]))
    assert found.accuracy is None
    assert evaluate(np.array([1.0, 1.0]), np.array([1, 2]), labels).pearson is None
