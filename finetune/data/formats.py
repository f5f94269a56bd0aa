"""The format of a training file: its first line decides it, and every other line must have the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import Completion, Conversation, Example, Preference, Text, TextPreference
from loragate.prompts.bodies import InvalidDocument, validate


class Method(StrEnum):
    """Training methods, by OpenAI's names."""

    SUPERVISED = "supervised"
    DPO = "dpo"


class Format(StrEnum):
    """Formats of training files."""

    CHAT = "chat"
    COMPLETION = "completion"
    TEXT = "text"
    PREFERENCE = "preference"
    TEXT_PREFERENCE = "text preference"

    @property
    def method(self) -> Method:
        """The method that trains on this format."""
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
_FIELD_SETS = {format: frozenset(fields) for format, fields in _FIELDS.items()}


def detect(document: Mapping[str, Any]) -> Format:
    """Return the format whose required fields the document has. Raise InvalidLine if there is none, or more than
    one."""
    found = [format for format, fields in _FIELD_SETS.items() if document.keys() >= fields]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidLine(_NO_FORMAT)
    raise InvalidLine(f"it matches more than one format ({', '.join(found)}): keep the fields of one")


def parse_example(document: Mapping[str, Any], format: Format) -> Example:
    """Return the document as an example of this format. Raise InvalidLine."""
    missing = [field for field in _FIELDS[format] if field not in document]
    if missing and any(document.keys() >= fields for fields in _FIELD_SETS.values()):
        raise InvalidLine(f"its format differs from that of the first line, which is {format} ({_named(format)})")
    try:
        return validate(_MODELS[format], document)
    except InvalidDocument as error:
        raise InvalidLine(str(error.field).removesuffix("."), error.field.param) from None


def _named(format: Format) -> str:
    return ", ".join(f"'{field}'" for field in _FIELDS[format])


_KNOWN = "; ".join(f"{format}: {_named(format)}" for format in Format)
_NO_FORMAT = f"it matches none of the known formats ({_KNOWN})"
