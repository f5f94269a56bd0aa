"""Uploading many folders in parallel: unchanged adapters are skipped, rejected ones are reported at the end."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.progress import Progress

from loragate.cli.client.http.api import Api, NotFound, path
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.client.transfer.folders import TENSORS, adapters_in, check_folder, digest_of
from loragate.cli.client.transfer.upload import send
from loragate.cli.errors import BAD_SETTING, CliError

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Outcome:
    """The result for one folder. `words` is the reason of a rejection."""

    folder: str
    name: str
    status: Literal["uploaded", "unchanged", "rejected"]
    version: int | None = None
    words: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the outcome as a row of output."""
        return asdict(self)


def upload_all(api: Api, root: Path, alias: str | None, concurrency: int) -> list[Outcome]:
    """Upload every adapter below `root` and return one outcome for each folder, in the folders' order.

    Raise CliError when there is nothing to upload, or when two folders would get the same name.
    """
    named = _named(root, adapters_in(root))
    with transfer_progress() as progress, ThreadPoolExecutor(concurrency) as pool:
        whole = progress.add_task("all", total=sum(_size(folder) for folder in named.values()))

        def one(name: str, folder: Path) -> Outcome:
            outcome = _upload(api, root, name, folder, alias, progress)
            progress.advance(whole, _size(folder))
            return outcome

        return list(pool.map(one, named, named.values()))


def _named(root: Path, folders: Iterable[Path]) -> dict[str, Path]:
    """Return the folders by adapter name: the path below `root`, with characters that names may not have replaced."""
    named: dict[str, Path] = {}
    for folder in folders:
        below = folder.relative_to(root).as_posix()
        name = _NOT_IN_NAMES.sub("-", folder.resolve().name if below == "." else below).strip("-.")
        if name in named:
            raise CliError(f"{folder} and {named[name]} would both be called {name}: rename one", BAD_SETTING)
        named[name] = folder
    if not named:
        raise CliError(f"{root} has no folder with an adapter_config.json", BAD_SETTING)
    return named


def _upload(api: Api, root: Path, name: str, folder: Path, alias: str | None, progress: Progress) -> Outcome:
    shown = str(folder.relative_to(root))
    task = progress.add_task(name, total=None)
    try:
        check_folder(folder)
        found = _version_of(api, name, digest_of(folder))
        if found is not None:
            return Outcome(shown, name, "unchanged", found)
        return Outcome(shown, name, "uploaded", int(send(api, folder, name, alias, progress, task)["version"]))
    except (CliError, OSError) as error:
        return Outcome(shown, name, "rejected", words=error.message if isinstance(error, CliError) else str(error))
    finally:
        progress.remove_task(task)


def _version_of(api: Api, name: str, digest: str | None) -> int | None:
    """Return the adapter's version with this digest, if it has one."""
    try:
        versions = api.list_all(path("v1", "adapters", name, "versions"))
        return next((int(version["version"]) for version in versions if version["digest"] == digest), None)
    except NotFound:
        return None


def _size(folder: Path) -> int:
    tensors = folder / TENSORS
    return tensors.stat().st_size if tensors.is_file() else 0
