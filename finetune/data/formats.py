"""The format of a training file: its first line decides it, and every other line must have the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import (
    Completion,
    Conversation,
    Example,
    LabelledChat,
    LabelledText,
    Preference,
    Text,
    TextPreference,
)
from loragate.prompts.bodies import InvalidDocument, validate


class Method(StrEnum):
    """Training methods; the first two by OpenAI's names."""

    SUPERVISED = "supervised"
    DPO = "dpo"
    CLASSIFY = "classify"


class Format(StrEnum):
    """Formats of training files."""

    CHAT = "chat"
    COMPLETION = "completion"
    TEXT = "text"
    PREFERENCE = "preference"
    TEXT_PREFERENCE = "text preference"
    LABELLED_CHAT = "labelled chat"
    LABELLED_TEXT = "labelled text"

    @property
    def method(self) -> Method:
        """The method that trains on this format."""
        return _METHODS.get(self, Method.SUPERVISED)


_METHODS: Mapping[Format, Method] = {
    Format.PREFERENCE: Method.DPO,
    Format.TEXT_PREFERENCE: Method.DPO,
    Format.LABELLED_CHAT: Method.CLASSIFY,
    Format.LABELLED_TEXT: Method.CLASSIFY,
}


_MODELS: Mapping[Format, type[Example]] = {
    Format.CHAT: Conversation,
    Format.COMPLETION: Completion,
    Format.TEXT: Text,
    Format.PREFERENCE: Preference,
    Format.TEXT_PREFERENCE: TextPreference,
    Format.LABELLED_CHAT: LabelledChat,
    Format.LABELLED_TEXT: LabelledText,
}
_FIELDS = {
    format: tuple(name for name, field in model.model_fields.items() if field.is_required())
    for format, model in _MODELS.items()
}
_FIELD_SETS = {format: frozenset(fields) for format, fields in _FIELDS.items()}


def detect(document: Mapping[str, Any]) -> Format:
    """Return the format whose required fields the document has: of two, the one that has those of the other, too.
    Raise InvalidLine if there is none, or more than one."""
    matches = {format: fields for format, fields in _FIELD_SETS.items() if document.keys() >= fields}
    found = [format for format, fields in matches.items() if not any(fields < others for others in matches.values())]
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
