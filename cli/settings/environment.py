"""Settings on their way to a child process: back into the environment they may have come from."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from loragate.cli.settings.model import PREFIX, Settings


def child_environment(settings: Settings, names: Collection[str]) -> dict[str, str]:
    """This process' environment with exactly these settings in it, and no settings file.

    A child sees only what it needs: the engine never learns the admin key.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
    chosen = {name: getattr(settings, name) for name in names}
    return inherited | dict(_variables(PREFIX, chosen)) | {f"{PREFIX}CONFIG": os.devnull}


def _variables(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, BaseModel):
            yield from _variables(f"{prefix}{name.upper()}__", dict(value))
        elif isinstance(value, tuple):
            yield prefix + name.upper(), json.dumps([_plain(each) for each in value])
        elif isinstance(value, SecretStr):
            yield prefix + name.upper(), value.get_secret_value()
        elif value is not None:
            yield prefix + name.upper(), str(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
