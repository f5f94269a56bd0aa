"""Mismatches for every kind of adapter: what PEFT rejects, what contradicts itself, what is hidden."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft.tuners.lora.config import BdLoraConfig, MontecloraConfig
from peft_outputs import read
from safetensors.torch import load, save

from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.kinds import AdapterKind as Kind
from loragate.peft_format.plan.layout import BaseLayout

pytestmark = pytest.mark.filterwarnings("ignore")

PREFIX = "base_model.model.model.layers.0"
TIED = {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True}
SAVED_TIED = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "ensure_weight_tying": True}
BLOCKS = BdLoraConfig(target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj"], nblocks=4)


def changed(upload: Any, **tensors: torch.Tensor | None) -> Any:
    """Return the upload with tensors replaced, added (by whole name) or, for None, removed."""
    merged = {**load(upload.tensors), **tensors}
    raw = save({name: tensor.contiguous() for name, tensor in merged.items() if tensor is not None})
    return replace(upload, tensors=raw)


def rejection(upload: Any) -> AdapterRejected:
    with pytest.raises(AdapterRejected) as caught:
        read(upload)
    assert caught.value.message.endswith(".")
    return caught.value


@pytest.mark.parametrize(
    ("kind", "made", "edits", "param"),
    [
        ("llama", {"use_dora": True}, {"lora_bias": True}, "lora_bias"),
        ("llama", {"use_dora": True}, {"alora_invocation_tokens": [1]}, "use_dora"),
        ("llama", {"use_dora": True}, {"use_bdlora": {"nblocks": 2}}, "use_dora"),
        ("llama", {"target_modules": ["embed_tokens"]}, {"lora_bias": True}, "lora_bias"),
        ("llama", {"target_modules": ["embed_tokens"]}, {"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ("llama", {}, {"alora_invocation_tokens": [1], "modules_to_save": ["q_proj"]}, "target_modules"),
        ("llama", {"modules_to_save": ["lm_head"]}, {"alora_invocation_tokens": [1]}, "modules_to_save"),
        ("llama", {"trainable_token_indices": [5]}, {"alora_invocation_tokens": [1]}, "trainable_token_indices"),
        ("qwen2", {"bias": "lora_only"}, {"alora_invocation_tokens": [1]}, "bias"),
        ("gpt_oss", {"target_parameters": ["down_proj"]}, {"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ("gpt_oss", {"target_parameters": ["down_proj"]}, {"use_dora": True}, "use_dora"),
        ("llama", {}, {"target_modules": ["q_proj", "norm"]}, "target_modules"),
        ("llama", {}, {"target_parameters": ["q_proj.weight"]}, "target_parameters"),
        ("llama", {}, {"target_parameters": ["embed_tokens.weight"]}, "target_parameters"),
        ("llama", {}, {"modules_to_save": ["_proj"]}, "modules_to_save"),
        ("llama", {}, {"modules_to_save": ["lm.*head"]}, "modules_to_save"),
        ("gpt_oss", {}, {"modules_to_save": ["router"]}, "modules_to_save"),
        ("gpt_oss", {}, {"target_parameters": ["sinks"]}, "target_parameters"),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": [96]}, "trainable_token_indices"),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": [-1]}, "trainable_token_indices"),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": [5, 5]}, "trainable_token_indices"),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": []}, "trainable_token_indices"),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": {"": [5]}}, "trainable_token_indices"),
        (
            "llama",
            {"trainable_token_indices": [5]},
            {"trainable_token_indices": {"wte": [5]}},
            "trainable_token_indices",
        ),
        (
            "llama",
            {"trainable_token_indices": [5]},
            {"trainable_token_indices": {"norm": [5]}},
            "trainable_token_indices",
        ),
        ("llama", {"trainable_token_indices": [5]}, {"trainable_token_indices": "5"}, "trainable_token_indices"),
        ("llama", {"trainable_token_indices": [5]}, {"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
        (
            "qwen2",
            {"trainable_token_indices": [5]},
            {"trainable_token_indices": {"q_proj": [5]}},
            "trainable_token_indices",
        ),
        (
            "tied_llama",
            {"trainable_token_indices": {"embed_tokens": [5], "lm_head": [6]}},
            {"ensure_weight_tying": True},
            "trainable_token_indices",
        ),
        ("llama", {"target_modules": ["embed_tokens"]}, {"trainable_token_indices": [5]}, "trainable_token_indices"),
        (
            "tied_llama",
            {"trainable_token_indices": [5], "target_modules": ["lm_head"], "use_dora": True},
            {},
            "trainable_token_indices",
        ),
        ("llama", {"bias": "none"}, {"bias": "some"}, "bias"),
        ("llama", {"bias": "none"}, {"bias": None}, "bias"),
        ("llama", {}, {"alora_invocation_tokens": ["a"]}, "alora_invocation_tokens"),
        ("llama", {}, {"use_bdlora": {"target_modules_bd_a": ["q_proj"] * 257}}, "use_bdlora"),
        ("llama", {}, {"trainable_token_indices": {str(n): [5] for n in range(17)}}, "trainable_token_indices"),
        ("llama", {}, {"use_bdlora": {"nblocks": 2}}, "use_bdlora"),
        ("llama", {}, {"use_bdlora": {"nblocks": 0}}, "use_bdlora"),
        ("llama", {}, {"use_bdlora": {"blocks": 2}}, "use_bdlora"),
        ("llama", {}, {"use_bdlora": True}, "use_bdlora"),
        ("llama", {}, {"use_bdlora": {"target_modules_bd_a": ["q_"], "target_modules_bd_b": ["proj"]}}, "use_bdlora"),
        ("llama", {}, {"use_bdlora": {"target_modules_bd_a": ["q_proj"], "nblocks": 3}}, "use_bdlora"),
    ],
)
def test_contradictions_are_rejected_by_their_field(
    make_adapter: Any, kind: str, made: dict[str, Any], edits: dict[str, Any], param: str
) -> None:
    upload = make_adapter(kind, **{"r": 4, "target_modules": ["q_proj"], **made}).edited(**edits)

    assert rejection(upload).param == f"adapter_config.json: {param}"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"use_dora": True}, f"{PREFIX}.self_attn.q_proj.lora_magnitude_vector"),
        ({"target_modules": ["embed_tokens"]}, "base_model.model.model.embed_tokens.lora_embedding_A"),
        ({"target_modules": ["embed_tokens"]}, "base_model.model.model.embed_tokens.lora_embedding_B"),
        ({"modules_to_save": ["lm_head"]}, "base_model.model.lm_head.weight"),
        ({"modules_to_save": ["model.norm"]}, "base_model.model.model.norm.weight"),
        (
            {"trainable_token_indices": [5, 6]},
            "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
        ),
        ({"use_bdlora": BLOCKS, "target_modules": ["q_proj", "o_proj"]}, f"{PREFIX}.self_attn.q_proj.lora_B.weight"),
        ({"use_bdlora": BLOCKS, "target_modules": ["q_proj", "o_proj"]}, f"{PREFIX}.self_attn.o_proj.lora_A.weight"),
    ],
)
def test_a_missing_or_misshapen_tensor_is_named(make_adapter: Any, fields: dict[str, Any], named: str) -> None:
    upload = make_adapter("llama", **{"r": 4, "target_modules": ["q_proj"], **fields})
    other = torch.ones(tuple(size + 1 for size in load(upload.tensors)[named].shape))

    for tensor in (None, other):
        assert rejection(changed(upload, **{named: tensor})).param == f"adapter_model.safetensors: {named}"


@pytest.mark.parametrize("position", ["base_layer.lora_A", "base_layer.lora_B", "lora_A", "lora_B"])
def test_nested_parameters_are_distinguished_by_their_order(make_adapter: Any, position: str) -> None:
    fields = {"target_modules": [], "target_parameters": ["down_proj", "gate_up_proj"]}
    name = f"{PREFIX}.mlp.experts.{position}.weight"

    error = rejection(changed(make_adapter("gpt_oss", r=4, **fields), **{name: torch.ones(1, 1)}))

    assert error.param == f"adapter_model.safetensors: {name}"
    assert ("gate_up_proj" if "base_layer" in position else "down_proj") in error.message


@pytest.mark.parametrize(
    ("fields", "tensor"),
    [
        (TIED, "base_model.model.lm_head.lora_A.weight"),
        (TIED, "base_model.model.lm_head.lora_B.weight"),
        (SAVED_TIED, "base_model.model.lm_head.weight"),
        (
            {"target_modules": ["q_proj"], "trainable_token_indices": [5], "save_embedding_layers": True},
            "base_model.model.lm_head.token_adapter.trainable_tokens_delta",
        ),
    ],
)
def test_tied_tensors_that_differ_are_rejected(make_adapter: Any, fields: dict[str, Any], tensor: str) -> None:
    upload = make_adapter("tied_llama", r=4, **fields)
    values = load(upload.tensors)[tensor].clone()
    values[0, 0] += 1

    assert read(upload).tied
    assert rejection(changed(upload, **{tensor: values})).param == f"adapter_model.safetensors: {tensor}"


@pytest.mark.parametrize(
    ("kind", "fields", "paths"),
    [
        ("llama", {"target_modules": ["embed_tokens", "lm_head"]}, {"model.embed_tokens.weight", "lm_head.weight"}),
        ("llama", {"target_modules": ["q_proj"]}, {"model.embed_tokens.weight", "lm_head.weight"}),
        ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, {"model.embed_tokens.weight"}),
        (
            "tied_llama",
            {"target_modules": ["q_proj"], "trainable_token_indices": [5]},
            {"model.embed_tokens.weight", "lm_head.weight"},
        ),
        ("tied_gpt2", {"target_modules": ["c_attn"]}, {"transformer.wte.weight", "lm_head.weight"}),
    ],
)
def test_saved_copies_of_the_base_must_be_compared(
    make_adapter: Any, kind: str, fields: dict[str, Any], paths: set[str]
) -> None:
    upload = make_adapter(kind, save_embedding_layers=True, r=4, **fields)
    plan = read(upload)

    assert plan.base_copies.keys() == paths
    assert plan.size_bytes == sum(spec.end - spec.begin for spec in plan.tensors)
    unable = replace(upload.layout, serves=frozenset(Kind) - {Kind.BASE_COPIES})
    assert "save_embedding_layers=False" in rejection(replace(upload, layout=unable)).message


def test_training_only_tensors_are_explained_for_targets_alone(make_adapter: Any) -> None:
    upload = make_adapter("llama", r=4, target_modules=["q_proj"], monteclora_config=MontecloraConfig())
    sampler = f"{PREFIX}.self_attn.q_proj.lora_monteclora_sampler.std_prior"
    assert sampler in load(upload.tensors)

    assert sampler not in {spec.name for spec in read(upload).tensors}
    elsewhere = sampler.replace("q_proj", "k_proj")
    assert rejection(changed(upload, **{elsewhere: torch.ones(4)})).param.endswith(elsewhere)


def test_qalora_on_another_base_is_rejected_with_advice(make_adapter: Any) -> None:
    upload = make_adapter("llama", r=4, target_modules=["q_proj"], use_qalora=True, qalora_group_size=4)
    pooled = {f"base_model.model.model.layers.{n}.self_attn.q_proj.lora_A.weight": torch.ones(4, 8) for n in range(3)}

    assert "GPTQ" in rejection(changed(upload, **pooled)).message


def test_activation_keeps_the_tokens_in_order(make_adapter: Any) -> None:
    plan = read(make_adapter("llama", target_modules=["q_proj"], alora_invocation_tokens=[7, 3, 7]))

    assert plan.invocation_tokens == (7, 3, 7)
    assert plan.kinds == {Kind.ACTIVATED}
    assert read(make_adapter("llama", target_modules=["q_proj"], alora_invocation_tokens=[])).invocation_tokens is None


def test_parts_that_the_engine_does_not_serve_are_rejected(make_adapter: Any) -> None:
    """Each part of the model can reject an adapter, in addition to the kinds."""
    for kind, fields, part in (
        ("llama", {"modules_to_save": ["lm_head"]}, "lm_head"),
        ("llama", {"trainable_token_indices": [5]}, "model.embed_tokens"),
        ("tied_llama", {"trainable_token_indices": [5]}, "lm_head"),
        ("llama", {"target_modules": ["embed_tokens"]}, "model.embed_tokens"),
        ("qwen2", {"bias": "all"}, "model.layers.1.self_attn.k_proj"),
        ("mixtral", {"target_parameters": ["gate_up_proj"]}, "model.layers.2.mlp.experts.gate_up_proj"),
    ):
        upload = make_adapter(kind, **{"r": 4, "target_modules": ["q_proj"], **fields})
        assert read(upload)
        assert part in rejection(replace(upload, layout=without(upload.layout, part))).message


def without(layout: BaseLayout, part: str) -> BaseLayout:
    modules = {name: replace(module, servable=name != part) for name, module in layout.modules.items()}
    parameters = {path: replace(each, servable=path != part) for path, each in layout.parameters.items()}
    return replace(layout, modules=modules, parameters=parameters)


def test_names_that_match_nothing_are_reported(make_adapter: Any) -> None:
    upload = make_adapter("mixtral", target_modules=["q_proj"], target_parameters=["down_proj"], r=4)

    warnings = read(upload.edited(target_parameters=["down_proj", "up"], modules_to_save=["nothing"])).warnings

    assert [any(name in text for name in ("up", "nothing")) for text in warnings] == [True, True]


UPLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "dora": ("llama", {"target_modules": ["q_proj", "embed_tokens"], "use_dora": True}),
    "tied": ("tied_llama", TIED),
    "saved": ("gpt2", {"target_modules": ["c_attn"], "modules_to_save": ["ln_f", "lm_head"], "bias": "all"}),
    "tokens": ("tied_llama", {"target_modules": ["q_proj"], "trainable_token_indices": [5, 2]}),
    "mixture": ("mixtral", {"target_modules": "all-linear"}),
    "blocks": ("llama", {"target_modules": ["q_proj", "o_proj"], "use_bdlora": BLOCKS}),
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 120),
    st.sampled_from(["", "all", "all-linear", "embed_tokens", ".*", "lm_head", "norm", "w1"]),
    st.lists(st.integers(-1, 100), max_size=3),
    st.lists(st.sampled_from(["q_proj", "embed_tokens", "lm_head", "norm", "gate", "down_proj", "weight"]), max_size=3),
    st.dictionaries(st.sampled_from(["embed_tokens", "lm_head", "nblocks"]), st.lists(st.integers(0, 95), max_size=2)),
)
FIELDS = (
    *("r", "use_dora", "bias", "modules_to_save", "trainable_token_indices", "target_parameters", "target_modules"),
    *("ensure_weight_tying", "alora_invocation_tokens", "use_bdlora", "exclude_modules", "lora_bias", "rank_pattern"),
)


@pytest.mark.parametrize("name", UPLOADS)
def test_any_config_is_planned_or_rejected(make_adapter: Any, name: str) -> None:
    """Every byte of a planned file is explained, and only rejections are ever raised."""
    kind, fields = UPLOADS[name]
    upload = make_adapter(kind, save_embedding_layers="auto", r=4, **fields)
    names = sorted(load(upload.tensors))

    @cache
    def without_tensor(tensor: str | None) -> Any:
        return upload if tensor is None else changed(upload, **{tensor: None})

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3), st.none() | st.sampled_from(names))
    def planned_or_rejected(edits: dict[str, object], tensor: str | None) -> None:
        edited = without_tensor(tensor).edited(**edits)
        try:
            plan = read(edited)
        except AdapterRejected:
            return
        explained = {spec.name for spec in plan.tensors} | {spec.name for spec in plan.base_copies.values()}
        left = set(load(edited.tensors)) - explained
        assert all(any(part in each for part in ("original_module", "modules_to_save")) for each in left)
        assert plan.kinds <= edited.layout.serves

    planned_or_rejected()
    assert json.loads(upload.config)["peft_type"] == "LORA"


def test_many_names_cost_no_more_than_reading_them(make_adapter: Any) -> None:
    """No work is done for each pair of a name and a module; there would be sixty million pairs."""
    upload = make_adapter("llama", r=4, target_modules=["q_proj"])
    names = [f"x{number}" for number in range(30_000)]
    layer = "model.layers.{}.mlp.up_proj"
    template = upload.layout.modules["model.layers.0.mlp.up_proj"]
    more = {layer.format(n): replace(template, name=layer.format(n)) for n in range(3, 2_000)}
    wide = replace(upload, layout=replace(upload.layout, modules=dict(upload.layout.modules) | more))

    plan = read(wide.edited(modules_to_save=names, target_parameters=names))

    assert len(plan.modules) == 3
    assert "more warnings" in plan.warnings[-1]
