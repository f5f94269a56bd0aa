"""Reads the settings from where they may stand, and says by name what is wrong with them."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from loragate.cli.refusal import BAD_SETTING, Refusal
from loragate.cli.settings.model import DEFAULT_FILE, PREFIX, Settings
from loragate.cli.settings.names import environment_names, suggestion, unknown_variables


def load(**options: Any) -> Settings:
    """Settings by precedence: option, environment, file, default. An option that is None was not given.

    Raises `Refusal` with the name of the first setting that is unknown or has a bad value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _refuse_unknown_variables()
    file = _settings_file(given)

    class Sources(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        return Sources(**given)
    except ValidationError as error:
        raise Refusal(_explain(error, given, file), BAD_SETTING) from None
    except SettingsError as error:
        raise Refusal(f"{error}; give JSON, or one variable for each field", BAD_SETTING) from None
    except tomllib.TOMLDecodeError as error:
        raise Refusal(f"{file} is not valid TOML: {error}", BAD_SETTING) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{file} cannot be read: {error}", BAD_SETTING) from None


def _refuse_unknown_variables() -> None:
    for name in unknown_variables(Settings, os.environ):
        hint = suggestion(name.upper(), environment_names(Settings))
        raise Refusal(f"unknown setting {name} in the environment{hint}", BAD_SETTING)


def _settings_file(given: Mapping[str, object]) -> Path | None:
    named = given.get("config") or os.environ.get(f"{PREFIX}CONFIG")
    if not named:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    path = Path(str(named)).expanduser()
    if not path.exists():
        raise Refusal(f"the settings file {path} (--config or {PREFIX}CONFIG) does not exist", BAD_SETTING)
    return path


def _explain(error: ValidationError, given: Mapping[str, object], file: Path | None) -> str:
    problem = error.errors(include_url=False, include_context=False)[0]
    path = tuple(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        dotted = ".".join(path)
        known = [name.removeprefix(PREFIX).lower().replace("__", ".") for name in environment_names(Settings)]
        return f"unknown setting {dotted} in {file}{suggestion(dotted, known)}"
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{_place(path, given, file)}: {_decapitalised(reason)}"


def _place(path: tuple[str, ...], given: Mapping[str, Any], file: Path | None) -> str:
    """Where the bad value stands, by the rule that decided which value counts; within a list, the list."""
    while path[-1].isdigit():
        path = path[:-1]
    variable = PREFIX + "__".join(path).upper()
    if path[0] in given and (len(path) == 1 or path[1] in given[path[0]]):
        return f"--{'-'.join(path[-1].split('_'))}"
    if any(os.environ.get(name) for name in os.environ if name.upper() == variable):
        return variable
    if file is not None:
        return f"{'.'.join(path)} in {file}"
    return variable


def _decapitalised(reason: str) -> str:
    return reason[:1].lower() + reason[1:] if reason[1:2].islower() else reason
