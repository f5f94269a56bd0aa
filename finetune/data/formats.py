"""Which format a training file has: that of its first line, which every other line must have."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import Completion, Conversation, Example, Preference, Text, TextPreference
from loragate.prompts.validation import InvalidDocument, read


class Method(StrEnum):
    """OpenAI's names."""

    SUPERVISED = "supervised"
    DPO = "dpo"


class Format(StrEnum):
    CHAT = "chat"
    COMPLETION = "completion"
    TEXT = "text"
    PREFERENCE = "preference"
    TEXT_PREFERENCE = "text preference"

    @property
    def method(self) -> Method:
        """That learns from it."""
        return Method.DPO if self in (Format.PREFERENCE, Format.TEXT_PREFERENCE) else Method.SUPERVISED


_MODELS: Mapping[Format, type[Example]] = {
    Format.CHAT: Conversation,
    Format.COMPLETION: Completion,
    Format.TEXT: Text,
    Format.PREFERENCE: Preference,
    Format.TEXT_PREFERENCE: TextPreference,
}
_FIELDS = {
    format: tuple(name for name, field in model.model_fields.items() if field.is_required())
    for format, model in _MODELS.items()
}


def detect(document: Mapping[str, Any]) -> Format:
    """By the fields that a format cannot do without. Raises InvalidLine for none, and for several."""
    found = [format for format, fields in _FIELDS.items() if document.keys() >= set(fields)]
    if len(found) == 1:
        return found[0]
    if not found:
        known = "; ".join(f"{format}: {_named(format)}" for format in Format)
        raise InvalidLine(f"it is in none of the known formats ({known})")
    raise InvalidLine(f"it could be {' or '.join(found)}: keep the fields of one format")


def parse_example(document: Mapping[str, Any], format: Format) -> Example:
    """Raises InvalidLine."""
    missing = [field for field in _FIELDS[format] if field not in document]
    if missing and any(document.keys() >= set(fields) for fields in _FIELDS.values()):
        raise InvalidLine(f"it has another format than the first line, which is {format} ({_named(format)})")
    try:
        return read(_MODELS[format], document)
    except InvalidDocument as refused:
        raise InvalidLine(str(refused.reason).removesuffix("."), refused.reason.param) from None


def _named(format: Format) -> str:
    return ", ".join(f"'{field}'" for field in _FIELDS[format])
