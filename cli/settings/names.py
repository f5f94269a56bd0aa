"""The settings' names: which exist, and which one a stray environment variable was meant to be."""

import difflib
from collections.abc import Iterable, Iterator

from pydantic import BaseModel
from pydantic_settings import BaseSettings

from loragate.cli.settings.model import PREFIX


def environment_names(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[str]:
    """Every environment variable that `model` reads, nested ones with `__`."""
    for name, field in model.model_fields.items():
        yield prefix + name.upper()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from environment_names(field.annotation, f"{prefix}{name.upper()}__")


def unknown_variables(settings: type[BaseSettings], environment: Iterable[str]) -> list[str]:
    """Variables with our prefix that no setting reads, sorted."""
    known = set(environment_names(settings))
    ours = {name for name in environment if name.upper().startswith(PREFIX)}
    return sorted(name for name in ours if name.upper() not in known)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing when no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
