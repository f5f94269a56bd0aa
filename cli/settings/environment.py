"""Settings as environment variables, to pass them to a child process."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from loragate.cli.settings.model import PREFIX, Settings
from loragate.cli.settings.types import NONE


def child_environment(settings: Settings, names: Collection[str]) -> dict[str, str]:
    """Return this process' environment with exactly these settings, and no settings file.

    A child receives only what it needs: the engine, for example, never receives the admin key.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    chosen = {name: getattr(settings, name) for name in names}
    return inherited | dict(_variables(PREFIX, chosen, {})) | {f"{PREFIX}CONFIG": os.devnull}


def _variables(prefix: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        variable = prefix + name.upper()
        if isinstance(value, BaseModel) or is_dataclass(value):
            yield from _variables(f"{variable}__", _fields(value), _fields(_default(value)))
        elif isinstance(value, tuple):
            shown = [each.get_secret_value() if isinstance(each, SecretStr) else each for each in value]
            yield variable, json.dumps(to_jsonable_python(shown, exclude_none=True))
        elif isinstance(value, SecretStr):
            yield variable, value.get_secret_value()
        elif value is not None:
            yield variable, str(value)
        elif defaults.get(name) is not None:
            yield variable, NONE


def _fields(section: Any) -> dict[str, Any]:
    if isinstance(section, BaseModel):
        return dict(section)
    return {field.name: getattr(section, field.name) for field in fields(section)}


def _default(section: Any) -> Any:
    return type(section)()
