"""Adapters with a head for labels, as PEFT saves them: their plans, what is rejected, and their identity."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, save
from tiny_models import add_classifier, make_model

from loragate.engine.model.classifier_heads import classifier_heads
from loragate.engine.model.manifest import SERVES, targets
from loragate.peft_format.classification import Classifier, ProblemType, Task
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.read import AdapterReading, read_adapter

LABELS = {"0": "billing", "1": "technical", "2": "other"}
GPT2 = "gpt2"  # its head has another name for each task


def layout_of(model: Any, serves: frozenset[AdapterKind] = SERVES) -> BaseLayout:
    found = targets(model)
    return BaseLayout(
        model_type=model.config.model_type,
        num_layers=3,
        modules={module.name: module for module in found.modules},
        serves=serves,
        input_embedding=found.input_embedding,
        head=found.head,
        classifier_heads=classifier_heads(model),
    )


def read(folder: Path, layout: BaseLayout, tensors: dict[str, Any] | None = None, **fields: object) -> AdapterReading:
    """Read an adapter with some tensors and fields of its config changed; None removes one."""
    config = json.loads((folder / "adapter_config.json").read_text()) | fields
    raw = (folder / "adapter_model.safetensors").read_bytes()
    if tensors:
        merged = load(raw) | tensors
        raw = save({name: tensor for name, tensor in merged.items() if tensor is not None})
    return read_adapter(json.dumps(config).encode(), BytesIO(raw), len(raw), layout)


@pytest.mark.parametrize(
    ("task", "head", "targets"),
    [
        ("SEQ_CLS", "score", "all-linear"),
        ("SEQ_CLS", "score", ["c_attn"]),
        ("TOKEN_CLS", "classifier", ["c_attn"]),  # PEFT cannot save it with all-linear
    ],
)
def test_a_head_is_no_module_of_the_base_model(tmp_path: Path, task: str, head: str, targets: Any) -> None:
    model = make_model(GPT2)
    adapter = add_classifier(model, tmp_path, 1, 3, task, id2label=LABELS, target_modules=targets)
    plan = read(adapter, layout_of(model)).plan
    assert plan.classifier is not None
    assert plan.classifier.classifier == Classifier(Task(task), tuple(LABELS.values()))
    assert {name: spec.name for name, spec in plan.classifier.head.parameters.items()} == {
        name: f"base_model.model.{head}.{name}" for name in (("weight",) if head == "score" else ("weight", "bias"))
    }
    assert plan.kinds == {AdapterKind.CLASSIFIER}
    assert "lm_head" not in plan.modules
    assert set(load((adapter / "adapter_model.safetensors").read_bytes())) == {spec.name for spec in plan.tensors}
    assert not [warning for warning in plan.warnings if head not in warning]


def test_labels_and_their_activation_belong_to_the_identity(tmp_path: Path) -> None:
    model = make_model("llama")
    layout = layout_of(model)
    adapter = add_classifier(model, tmp_path, 1, 3)
    plain = read(adapter, layout)
    assert plain.plan.classifier is not None
    assert plain.plan.classifier.classifier.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    others = [read(adapter, layout, id2label=LABELS), read(adapter, layout, problem_type="regression")]
    assert len({plain.digest, *(other.digest for other in others)}) == 3
    assert read(adapter, layout, num_labels=3, label2id={"a": 0}).digest == plain.digest


@pytest.mark.parametrize(
    ("labels", "given", "activation"),
    [
        (2, None, ProblemType.SINGLE_LABEL),
        (1, None, ProblemType.MULTI_LABEL),
        (1, ProblemType.SINGLE_LABEL, ProblemType.MULTI_LABEL),
        (1, ProblemType.REGRESSION, ProblemType.REGRESSION),
        (3, ProblemType.MULTI_LABEL, ProblemType.MULTI_LABEL),
    ],
)
def test_the_activation(labels: int, given: ProblemType | None, activation: ProblemType) -> None:
    assert Classifier(Task.SEQUENCE, tuple("abc"[:labels]), given).activation is activation


HEAD = "base_model.model.score.weight"


@pytest.mark.parametrize(
    ("tensors", "fields", "param"),
    [
        ({HEAD: None}, {}, f"adapter_model.safetensors: {HEAD}"),
        ({HEAD: "narrow"}, {}, f"adapter_model.safetensors: {HEAD}"),
        ({HEAD: "vector"}, {}, f"adapter_model.safetensors: {HEAD}"),
        ({"base_model.model.score.bias": "vector"}, {}, "adapter_model.safetensors: base_model.model.score.bias"),
        ({}, {"id2label": {"0": "a", "1": "b"}}, "adapter_config.json: id2label"),
        ({}, {"modules_to_save": None}, "adapter_config.json: modules_to_save"),
        ({}, {"task_type": "CAUSAL_LM"}, f"adapter_model.safetensors: {HEAD}"),
        ({}, {"target_modules": ["lm_head"]}, "adapter_config.json: target_modules"),
    ],
)
def test_what_does_not_fit_is_rejected_by_its_part(
    tmp_path: Path, tensors: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    model = make_model("llama")
    adapter = add_classifier(model, tmp_path, 1, 3)
    head = load((adapter / "adapter_model.safetensors").read_bytes())[HEAD]
    made = {"narrow": head[:, 1:].contiguous(), "vector": head[0].clone(), None: None}
    with pytest.raises(AdapterRejected) as caught:
        read(adapter, layout_of(model), {name: made[what] for name, what in tensors.items()}, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize("architecture", ["gemma3_text", "olmo2", "opt"])
def test_a_task_that_transformers_has_no_class_for_is_rejected(tmp_path: Path, architecture: str) -> None:
    model = make_model(architecture)
    adapter = add_classifier(model, tmp_path, 1, 3)
    layout = layout_of(model)
    assert layout.classifier_heads.keys() == {Task.SEQUENCE}
    read(adapter, layout)
    with pytest.raises(AdapterRejected, match="no class for it"):
        read(adapter, layout, task_type="TOKEN_CLS")


def test_an_engine_that_serves_no_heads_says_so(tmp_path: Path) -> None:
    model = make_model("llama")
    adapter = add_classifier(model, tmp_path, 1, 3)
    with pytest.raises(AdapterRejected, match="not served here") as caught:
        read(adapter, layout_of(model, SERVES - {AdapterKind.CLASSIFIER}))
    assert caught.value.param == "adapter_config.json: task_type"
