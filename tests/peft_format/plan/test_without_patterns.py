"""A config without patterns selects what PEFT selects with the patterns, and nothing of it is a tenant's expression."""

import json
import re
import time
from typing import Any

import peft
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from loragate.peft_format.config.lora_config import LoraConfig, parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.peft_format.plan.without_patterns import without_patterns
from tests.peft_format.plan.test_targets import FIELDS, NAME, REGEX, layout_of

OVERRIDES = st.dictionaries(st.one_of(NAME, REGEX, NAME.map("^{}".format)), st.integers(1, 64), max_size=6)
LLAMA = [
    "model.embed_tokens",
    *(f"model.layers.{n}.{m}" for n in range(4) for m in ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")),
    "lm_head",
]


def resolved(layout: BaseLayout, **fields: Any) -> LoraConfig:
    return without_patterns(parse_config(json.dumps({"peft_type": "LORA", **fields}).encode()), layout)


def wrapped(config: peft.LoraConfig, names: list[str]) -> dict[str, tuple[int, float]]:
    """The modules that PEFT wraps, with rank and alpha."""
    return {
        name: (
            config.rank_pattern.get(get_pattern_key(list(config.rank_pattern), name), config.r),
            config.alpha_pattern.get(get_pattern_key(list(config.alpha_pattern), name), config.lora_alpha),
        )
        for name in names
        if check_target_module_exists(config, name)
    }


@settings(max_examples=100, deadline=None)
@given(FIELDS, OVERRIDES, OVERRIDES, st.lists(NAME, min_size=1, max_size=25, unique=True))
def test_peft_wraps_the_same_modules_with_the_same_ranks_and_alphas(
    fields: dict[str, Any], ranks: dict[str, int], alphas: dict[str, int], names: list[str]
) -> None:
    fields = {**fields, "rank_pattern": ranks, "alpha_pattern": alphas}
    try:
        oracle = wrapped(peft.LoraConfig(**fields), names)
    except ValueError:
        assume(False)
    if not oracle:
        with pytest.raises(AdapterRejected, match="matches no module"):
            resolved(layout_of(names), **fields)
        return
    config = resolved(layout_of(names), **fields)
    assert not isinstance(config.target_modules, str)
    plain = peft.LoraConfig(
        target_modules=list(config.target_modules),
        exclude_modules=config.exclude_modules,
        rank_pattern=dict(config.rank_pattern),
        alpha_pattern=dict(config.alpha_pattern),
    )
    assert wrapped(plain, names) == oracle


def test_expressions_that_re_matches_for_ever_are_gone() -> None:
    evil = r"(.*)*x|model\.layers\.\d+\.(self_attn|mlp)\.[a-z]+_proj"
    started = time.process_time()
    config = resolved(
        layout_of(LLAMA),
        target_modules=evil,
        exclude_modules=r"(.*)*x|.*up_proj",
        rank_pattern={r"(.*)*x|.*\.1\..*": 4},
        alpha_pattern={r"(.*)*x|v_proj": 4},
    )
    assert config.target_modules == tuple(name for name in LLAMA if re.search("[qv]_proj$", name))
    assert (config.exclude_modules, config.layers_pattern) == ((), ())
    assert dict(config.rank_pattern) == {r"1\.self_attn\.q_proj": 4, r"1\.self_attn\.v_proj": 4}
    assert dict(config.alpha_pattern) == {"v_proj": 4.0}
    assert time.process_time() - started < 5


def test_names_that_no_module_has_are_dropped() -> None:
    config = resolved(layout_of(LLAMA), target_modules=["q_proj", "(.*)*x"], modules_to_save=["lm_head", "nowhere"])
    assert (config.target_modules, config.modules_to_save) == (("q_proj",), ("lm_head",))


@pytest.mark.parametrize(
    ("targets", "tied"), [(["embed_tokens"], True), (r".*embed_tokens", True), (r"model\.embed_tokens", False)]
)
def test_a_tie_is_kept_where_peft_keeps_it(targets: Any, tied: bool) -> None:
    ends = {
        "model.embed_tokens": TargetModule("model.embed_tokens", ModuleKind.EMBEDDING, 96, 32),
        "lm_head": TargetModule("lm_head", ModuleKind.LINEAR, 32, 96),
    }
    layout = BaseLayout("llama", 1, ends, tied_embeddings=True)
    config = resolved(layout, target_modules=targets, ensure_weight_tying=True)
    assert config.ensure_weight_tying is tied
    assert config.target_modules == (("model.embed_tokens", "lm_head") if tied else ("model.embed_tokens",))


def test_more_values_than_re_keeps_compiled_are_rejected() -> None:
    names = [f"model.layers.{n}.self_attn.q_proj" for n in range(300)]
    with pytest.raises(AdapterRejected, match="300 different values") as rejected:
        resolved(
            layout_of(names), target_modules=["q_proj"], alpha_pattern={name: n + 9 for n, name in enumerate(names)}
        )
    assert rejected.value.param == "adapter_config.json: alpha_pattern"
