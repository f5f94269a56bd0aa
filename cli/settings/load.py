"""Loading the settings from options, environment and file, with errors that name the setting."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import PREFIX, Settings
from loragate.cli.settings.names import environment_names, suggestion, unknown_variables
from loragate.cli.settings.sources import settings_file

_NAMED = re.compile(r"([a-z_]+(?:\.[a-z_]+)+) ")


def load(**options: Any) -> Settings:
    """Load the settings by precedence: option, environment, file, default. An option that is None was not given.

    Raise CliError with the name of the first setting that is unknown or has an invalid value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _reject_unknown_variables()
    file = settings_file(given)

    class Sources(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        return Sources(**given)
    except ValidationError as error:
        raise CliError(_explain(error, given, file), BAD_SETTING) from None
    except SettingsError as error:
        raise CliError(f"{error}; use JSON, or one variable for each field", BAD_SETTING) from None
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"{file} is not valid TOML: {error}", BAD_SETTING) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", BAD_SETTING) from None


def _reject_unknown_variables() -> None:
    for name in unknown_variables(Settings, os.environ):
        hint = suggestion(name.upper(), environment_names(Settings))
        raise CliError(f"unknown setting {name} in the environment{hint}", BAD_SETTING)


def _explain(error: ValidationError, given: Mapping[str, object], file: Path | None) -> str:
    problem = error.errors(include_url=False, include_context=False)[0]
    path = tuple(str(part) for part in problem["loc"])
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        dotted = ".".join(path)
        known = [name.removeprefix(PREFIX).lower().replace("__", ".") for name in environment_names(Settings)]
        return f"unknown setting {dotted} in {file}{suggestion(dotted, known)}"
    reason = problem["msg"].removeprefix("Value error, ")
    named = _NAMED.match(reason)
    if named is not None and named[1].startswith(".".join(path)):  # by a section's own check of one field
        path = tuple(named[1].split("."))
    return f"{_place(path, given, file)}: {_decapitalized(reason)}"


def _place(path: tuple[str, ...], given: Mapping[str, Any], file: Path | None) -> str:
    """Return where the invalid value comes from, by precedence; for an item of a list, where the list comes from."""
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


def _decapitalized(reason: str) -> str:
    return reason[:1].lower() + reason[1:] if reason[1:2].islower() else reason
