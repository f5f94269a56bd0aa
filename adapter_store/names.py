"""The grammar of names; each check returns its argument or raises Invalid with the field's name."""

import re

from loragate.adapter_store.errors import Invalid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FINE_TUNE_PREFIX = "ft:"
_MAX_KEY = 128
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_LABEL_LENGTH = 100
_SHOWN_LENGTH = 100
_MAX_VERSION = 2**31 - 1  # the database's largest integer


def check_adapter_name(name: str, *, base_model: str | None, param: str = "name") -> str:
    """Check an adapter's name: no `:` or `@`, which the grammar of `model` uses, and not the base model's id."""
    if is_tuned(name):
        raise Invalid(
            f"`{param}` must not start with `ft:`; these names are reserved for fine-tuned models.", param=param
        )
    _check_grammar(name, param)
    if name == base_model:
        raise Invalid(f"`{param}` is the base model's own id; choose another name.", param=param)
    return name


def check_alias_name(alias: str, *, param: str = "alias") -> str:
    """Check an alias: the same grammar, but not a number, which would look like a version."""
    _check_grammar(alias, param)
    if alias.isdigit():
        raise Invalid(f"`{param}` must not be a number; numbers are versions.", param=param)
    return alias


def could_be_name(name: str) -> bool:
    """Return whether an adapter or an alias can have this name; other texts never reach a query."""
    return _NAME.fullmatch(name) is not None


def is_tuned(name: str) -> bool:
    """Return whether the name is reserved for fine-tuned models."""
    return name.startswith(_FINE_TUNE_PREFIX)


def shortened(text: str) -> str:
    """Return a name or id from a request in the length that a message may repeat."""
    return text[:_SHOWN_LENGTH]


def could_be_version(version: int) -> bool:
    return 1 <= version <= _MAX_VERSION


def could_be_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def could_be_key(text: str) -> bool:
    """Return whether a row may have this id: one, or several joined by colons, as those of training runs are."""
    return len(text) <= _MAX_KEY and all(map(could_be_id, text.split(":")))


def check_label(label: str, *, param: str = "name", required: bool = True) -> str:
    """Check a free text for people (tenants' and keys' names): printable, without blanks at the ends."""
    if required and not label:
        raise Invalid(f"`{param}` must not be empty.", param=param)
    if len(label) > _LABEL_LENGTH or not label.isprintable() or label != label.strip():
        raise Invalid(
            f"`{param}` must be at most {_LABEL_LENGTH} printable characters without blanks at the ends.",
            param=param,
        )
    return label


def _check_grammar(name: str, param: str) -> None:
    if not could_be_name(name):
        raise Invalid(
            f"`{param}` must be 1 to 64 characters from A-Z, a-z, 0-9, `.`, `_` and `-`, starting with a "
            "letter or a digit.",
            param=param,
        )
