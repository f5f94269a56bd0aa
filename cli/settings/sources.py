"""Where a setting comes from, and whether the user vouches for it."""

import os
import stat
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import DEFAULT_FILE, PREFIX


class Source(Enum):
    """The source of a setting, by precedence."""

    OPTION = "an option"
    ENVIRONMENT = "the environment"
    NAMED_FILE = "the named settings file"
    FOLDER_FILE = f"./{DEFAULT_FILE}"
    DEFAULT = "the default"

    @property
    def is_users(self) -> bool:
        """Whether the user chose it, rather than the author of the current folder."""
        return self in (Source.OPTION, Source.ENVIRONMENT, Source.NAMED_FILE)


def source_of(name: str, options: Mapping[str, object]) -> Source:
    """Return where the setting `name` comes from, given a command's options."""
    if options.get(name) is not None:
        return Source.OPTION
    variable = PREFIX + name.upper()
    if any(os.environ[each] for each in os.environ if each.upper() == variable):
        return Source.ENVIRONMENT
    file = settings_file(options)
    if file is None or name not in tomllib.loads(file.read_text(encoding="utf-8")):
        return Source.DEFAULT
    return Source.NAMED_FILE if _named_file(options) else Source.FOLDER_FILE


def settings_file(options: Mapping[str, object]) -> Path | None:
    """Return the settings file: the named one, else the one in the current folder. Raise CliError if the named one
    is missing, or if others may have written the one in the folder."""
    named = _named_file(options)
    if not named:
        if not DEFAULT_FILE.exists():
            return None
        check_ours(DEFAULT_FILE, f"name it with --config or {PREFIX}CONFIG if you trust it")
        return DEFAULT_FILE
    path = Path(named).expanduser()
    if not path.exists():
        raise CliError(f"the settings file {path} (--config or {PREFIX}CONFIG) does not exist", BAD_SETTING)
    return path


def _named_file(options: Mapping[str, object]) -> str:
    return str(options.get("config") or os.environ.get(f"{PREFIX}CONFIG") or "")


def check_ours(path: Path, otherwise: str) -> None:
    """Raise CliError unless `path` belongs to this user or to root, and no other user can write to it.

    A group that has the user's own number has no other members.
    """
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise CliError(f"{path} belongs to another user: {otherwise}", BAD_SETTING)
    group_writes = found.st_mode & stat.S_IWGRP and found.st_gid != os.geteuid()
    if group_writes or found.st_mode & stat.S_IWOTH:
        raise CliError(f"other users can write to {path}: run `chmod go-w {path}`, or {otherwise}", BAD_SETTING)
