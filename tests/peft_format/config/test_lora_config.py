"""adapter_config.json: what is read, and what is rejected with the name of the field."""

import json

import pytest

from loragate.peft_format.config.lora_config import LoraConfig, parse_config
from loragate.peft_format.errors import AdapterRejected

MINIMAL = {"peft_type": "LORA", "target_modules": ["q_proj"]}


def parse(**fields: object) -> LoraConfig:
    return parse_config(json.dumps(MINIMAL | fields).encode())


def test_missing_fields_have_pefts_defaults() -> None:
    config = parse()

    assert (config.r, config.lora_alpha, config.use_rslora, config.lora_bias) == (8, 8.0, False, False)
    assert config.exclude_modules == config.rank_pattern == config.layers_to_transform == ()


def test_spellings_of_the_same_value_read_the_same() -> None:
    assert parse(layers_to_transform=3) == parse(layers_to_transform=[3, 3])
    assert parse(layers_pattern="h", layers_to_transform=1) == parse(layers_pattern=["h"], layers_to_transform=[1])
    assert parse(lora_alpha=16) == parse(lora_alpha=16.0)
    assert parse(rank_pattern=None, exclude_modules="", layers_pattern=[]) == parse()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"r": 0}, "r"),
        ({"r": -4}, "r"),
        ({"r": 8.0}, "r"),
        ({"r": True}, "r"),
        ({"r": None}, "r"),
        ({"r": "8"}, "r"),
        ({"lora_alpha": "16"}, "lora_alpha"),
        ({"lora_alpha": True}, "lora_alpha"),
        ({"lora_alpha": 1e300}, "lora_alpha"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"use_rslora": 1}, "use_rslora"),
        ({"lora_bias": None}, "lora_bias"),
        ({"rank_pattern": [1]}, "rank_pattern"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern"),
        ({"rank_pattern": {"q_proj": 2.5}}, "rank_pattern"),
        ({"rank_pattern": {"": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": None}}, "alpha_pattern"),
        ({"target_modules": None}, "target_modules"),
        ({"target_modules": []}, "target_modules"),
        ({"target_modules": ""}, "target_modules"),
        ({"target_modules": [1]}, "target_modules"),
        ({"target_modules": [""]}, "target_modules"),
        ({"target_modules": {"q_proj": 1}}, "target_modules"),
        ({"target_modules": "x" * 20_000}, "target_modules"),
        ({"exclude_modules": 3}, "exclude_modules"),
        ({"layers_to_transform": "1"}, "layers_to_transform"),
        ({"layers_to_transform": [1, True]}, "layers_to_transform"),
        ({"layers_to_transform": [-1]}, "layers_to_transform"),
        ({"layers_to_transform": [10**19]}, "layers_to_transform"),
        ({"layers_to_transform": [1], "target_modules": ".*q"}, "layers_to_transform"),
        ({"layers_pattern": "layers"}, "layers_pattern"),
        ({"layers_pattern": "(a+)+", "layers_to_transform": 1}, "layers_pattern"),
        ({"layers_pattern": "layers|h", "layers_to_transform": 1}, "layers_pattern"),
        ({"init_lora_weights": "pissa_niter_16"}, "init_lora_weights"),
        ({"init_lora_weights": "CorDA"}, "init_lora_weights"),
        ({"init_lora_weights": "lora_ga"}, "init_lora_weights"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights"),
        ({"init_lora_weights": "zeros"}, "init_lora_weights"),
        ({"init_lora_weights": None}, "init_lora_weights"),
        ({"peft_type": "LOHA"}, "peft_type"),
        ({"peft_type": "lora"}, "peft_type"),
        ({"task_type": "SEQ_2_SEQ_LM"}, "task_type"),
        ({"id2label": {"0": "a"}}, "id2label"),
        ({"problem_type": "regression"}, "problem_type"),
        ({"task_type": "SEQ_CLS", "problem_type": "ranking"}, "problem_type"),
        ({"task_type": "SEQ_CLS", "id2label": ["a"]}, "id2label"),
        ({"task_type": "SEQ_CLS", "id2label": {}}, "id2label"),
        ({"task_type": "SEQ_CLS", "id2label": {"1": "a"}}, "id2label"),
        ({"task_type": "SEQ_CLS", "id2label": {"0": "a", "1": "a"}}, "id2label"),
        ({"task_type": "SEQ_CLS", "id2label": {"0": ""}}, "id2label"),
        ({"task_type": "SEQ_CLS", "id2label": {"0": "x" * 257}}, "id2label"),
        ({"task_type": "SEQ_CLS", "alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"use_dora": 0}, "use_dora"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
        ({"\x1b[2J": 1}, "\\x1b[2J"),
    ],
)
def test_a_bad_field_is_rejected_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(AdapterRejected) as caught:
        parse(**fields)

    assert caught.value.param == f"adapter_config.json: {param}"
    assert caught.value.message.isprintable()


def test_another_kind_of_adapter_is_named_before_its_fields() -> None:
    raw = {"num_attention_heads": 2, "num_virtual_tokens": 8, "peft_type": "PROMPT_TUNING", "task_type": "CAUSAL_LM"}

    with pytest.raises(AdapterRejected) as caught:
        parse_config(json.dumps(raw).encode())

    assert caught.value.param == "adapter_config.json: peft_type"
    assert caught.value.message == (
        'peft_type is "PROMPT_TUNING": this kind of adapter is not served; the only one served is "LORA". '
        "Train a LoRA adapter, or convert this one with peft.convert_to_lora."
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b'{"peft_type": "LORA"',
        b'{"peft_type": "LORA", "r": 8, "r": 16, "target_modules": ["q_proj"]}',
        b'{"peft_type": "LORA", "target_modules": ["q_proj"], "lora_dropout": NaN}',
        b'{"peft_type": "LORA", "target_modules": ["q_proj"], "lora_alpha": 1e999}',
        b'{"peft_type": "LORA", "target_modules": ["q_proj"], "revision": "\\ud800"}',
        b'{"peft_type": "LORA", "target_modules": ["q_proj"], "r": 1' + b"0" * 5000 + b"}",
        b'{"auto_mapping": ' + b"[" * 100_000,
        b'{"auto_mapping": ' + b'{"a":' * 9 + b"1" + b"}" * 10,
        b'{"auto_mapping": [' + b"1," * 300_000 + b"1]}",
        b'{"auto_mapping": "' + b"x" * (1 << 20) + b'"}',
        b'{"auto_mapping": "' + b'\\"' * 500_000,
        b'{"target_modules": ["q_proj"]}',
    ],
    ids=range(18),
)
def test_a_bad_document_is_rejected(raw: bytes) -> None:
    with pytest.raises(AdapterRejected) as caught:
        parse_config(raw)

    assert caught.value.param.startswith("adapter_config.json")
    assert len(caught.value.message) < 500


def test_brackets_and_quotes_inside_strings_do_not_count_as_nesting() -> None:
    assert parse(base_model_name_or_path='[[[[{{{{"\\[[[[[' * 50, revision="é\\") == parse()
