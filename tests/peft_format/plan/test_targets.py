"""Targets and ranks for names of every form; the oracle is PEFT's own matching functions."""

import json
from typing import Any

import peft
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.scaling import Overrides
from loragate.peft_format.plan.targets import resolve_targets

PART = st.sampled_from(
    ["model", "layers", "h", "0", "1", "2", "10", "attn", "q_proj", "k_proj", "experts", "proj", "x"]
)
NAME = st.lists(PART, min_size=1, max_size=6).map(".".join)
LISTED = st.lists(NAME, min_size=1, max_size=5)
REGEX = st.sampled_from(
    [r".*q_proj", r"model\..*", r".*\.[01]\..*", "q_proj", r"(.*\.)?(q|k)_proj", r"layers.*|h.*", r"[^.]+\.attn.*", "x"]
)
FIELDS = st.one_of(
    st.fixed_dictionaries({"target_modules": REGEX}, optional={"exclude_modules": st.one_of(LISTED, REGEX)}),
    st.fixed_dictionaries(
        {
            "target_modules": LISTED,
            "layers_to_transform": st.one_of(st.integers(0, 2), st.lists(st.sampled_from([0, 1, 2, 10]), max_size=2)),
        },
        optional={
            "exclude_modules": st.one_of(LISTED, REGEX, st.just([])),
            "layers_pattern": st.sampled_from(["layers", "h", ["h", "layers"], "model.layers", "experts", [], None]),
        },
    ),
)


def layout_of(names: list[str]) -> BaseLayout:
    return BaseLayout("random", 3, {name: TargetModule(name, ModuleKind.LINEAR, 4, 4) for name in names})


def selected(fields: dict[str, Any], names: list[str]) -> list[str]:
    config = parse_config(json.dumps({"peft_type": "LORA", **fields}).encode())
    try:
        return [module.name for module in resolve_targets(config, layout_of(names), Budget()).modules]
    except AdapterRejected as rejected:
        if "matches no module" not in rejected.message:
            raise
        return []


@settings(max_examples=600, deadline=None)
@given(FIELDS, st.lists(NAME, min_size=1, max_size=25, unique=True))
def test_selection_is_pefts(fields: dict[str, Any], names: list[str]) -> None:
    try:
        oracle = peft.LoraConfig(**fields)
    except ValueError:
        assume(False)

    assert selected(fields, names) == [name for name in names if check_target_module_exists(oracle, name)]


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.one_of(NAME, REGEX, NAME.map("^{}".format)), st.integers(1, 64), max_size=6), NAME)
def test_rank_is_pefts(patterns: dict[str, int], name: str) -> None:
    expected = patterns.get(get_pattern_key(patterns, name), 8)

    assert Overrides(patterns.items(), "rank_pattern", Budget()).of(name, 8) == expected


@pytest.mark.parametrize("layers", [0, 1])
def test_the_layer_is_the_first_number_in_the_path(layers: int) -> None:
    names = ["model.layers.1.experts.0.w1", "model.layers.0.experts.1.w1"]
    fields = {"target_modules": ["w1"], "layers_to_transform": layers}

    assert selected(fields, names) == [name for name in names if f"layers.{layers}." in name]
