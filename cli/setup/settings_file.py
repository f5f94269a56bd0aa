"""Writing `loragate.toml`, checked before it is written."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.tls import check_tls

_HEAD = """\
# Settings of `loragate serve`. Every option and every LORAGATE_ variable can stand here, sections as [engine], [panel],
# [limits], …; options and variables win over this file.
"""


def checked(given: Mapping[str, Any]) -> Settings:
    """Return the settings that a file with these values makes. Raise CliError for an invalid one."""
    settings = load(**given, config=Path(os.devnull))
    check_tls(settings)
    return settings


def write(path: Path, given: Mapping[str, Any], *, force: bool = False) -> None:
    """Write the values, readable only by this user, because one of them is the admin key.

    Raise CliError if the file exists, unless `force` replaces it, or if it cannot be written.
    """
    lines = [f"{name} = {json.dumps(_plain(value), ensure_ascii=False)}\n" for name, value in given.items()]
    try:
        if force:
            path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_HEAD + "".join(lines))
    except FileExistsError:
        raise CliError(f"{path} exists: --force replaces it", BAD_SETTING) from None
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
