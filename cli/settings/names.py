"""The names of all settings, and suggestions for misspelled ones."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_settings import BaseSettings

from loragate.cli.settings.model import PREFIX


def environment_names(section: type, prefix: str = PREFIX) -> Iterator[str]:
    """Yield every environment variable that a section of the settings reads, nested ones with `__`."""
    for name, kind in _fields(section):
        yield prefix + name.upper()
        if isinstance(kind, type):
            yield from environment_names(kind, f"{prefix}{name.upper()}__")


def _fields(section: type) -> list[tuple[str, Any]]:
    if issubclass(section, BaseModel):
        return [(name, field.annotation) for name, field in section.model_fields.items()]
    return [(field.name, field.type) for field in fields(section)] if is_dataclass(section) else []


def unknown_variables(settings: type[BaseSettings], environment: Iterable[str]) -> list[str]:
    """Return the variables with our prefix that are no setting, sorted."""
    known = set(environment_names(settings))
    ours = {name for name in environment if name.upper().startswith(PREFIX)}
    return sorted(name for name in ours if name.upper() not in known)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?`, or "" when no known name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
