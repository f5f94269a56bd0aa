"""The table in `fields` against PEFT's own dataclass: a field that PEFT adds must not pass unread."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import peft
import pytest

from loragate.peft_format.config import lora_config as config
from loragate.peft_format.config.fields import FIELDS, LABEL_FIELDS, Field, Ignored, Rejected, Served
from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.servable import _INSTEAD

PAGE = Path(__file__).parents[3] / "docs/adapters.md"


def table() -> Iterator[str]:
    """Return the rows of the documentation's table: every option of PEFT, in its order, with its treatment."""
    yield "| option | state | |"
    yield "|---|---|---|"
    for option in dataclasses.fields(peft.LoraConfig):
        yield "| `{}` | {} | {} |".format(option.name, *_state(FIELDS[option.name]))


def _state(field: Field) -> tuple[str, str]:
    match field:
        case Served():
            return "served" + (f" (`{field.kind}`)" if field.kind else ""), field.meaning
        case Ignored():
            return "ignored", field.reason
        case Rejected():
            neutral = ", ".join(f"`{value!r}`" for value in field.neutral)
            return f"rejected unless {neutral}", field.advice


def test_the_page_shows_this_table() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith(("| `", "| option"))]
    wanted = [row for row in table() if not row.startswith("|--")]
    start = rows.index(wanted[0])

    assert rows[start : start + len(wanted)] == wanted


def test_every_kind_is_on_the_page_and_has_advice() -> None:
    text = PAGE.read_text()

    assert not [kind for kind in AdapterKind if f"| `{kind}` |" not in text]
    assert _INSTEAD.keys() == set(AdapterKind) - {AdapterKind.BASE_COPIES}


def test_every_field_of_peft_is_classified_and_no_other() -> None:
    assert set(FIELDS) == {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert not FIELDS.keys() & LABEL_FIELDS.keys()


def test_each_neutral_value_is_what_peft_defaults_to() -> None:
    default = peft.LoraConfig()
    for field in FIELDS.values():
        if isinstance(field, Rejected):
            assert getattr(default, field.name) in field.neutral, field.name


def test_every_served_field_is_read() -> None:
    read = {field.name for field in dataclasses.fields(config.LoraConfig)}
    assert read == {name for name, field in {**FIELDS, **LABEL_FIELDS}.items() if isinstance(field, Served)} - {
        "init_lora_weights"
    }


@pytest.mark.parametrize(
    "name", [name for name, field in {**FIELDS, **LABEL_FIELDS}.items() if isinstance(field, Ignored)]
)
def test_an_ignored_field_takes_any_value(name: str) -> None:
    minimal = b'{"peft_type": "LORA", "target_modules": ["q_proj"], "%s": {"a": [1]}}' % name.encode()
    plain = b'{"peft_type": "LORA", "target_modules": ["q_proj"]}'

    assert parse_config(minimal) == parse_config(plain)


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if isinstance(field, Rejected)])
def test_a_rejected_field_is_named_with_advice(name: str) -> None:
    raw = b'{"peft_type": "LORA", "target_modules": ["q_proj"], "%s": {"a": [1]}}' % name.encode()

    with pytest.raises(AdapterRejected, match=name) as caught:
        parse_config(raw.replace(b'"LORA", ', b'"LORA", ' if name != "peft_type" else b'"X", ', 1))

    assert caught.value.message.endswith(".")
