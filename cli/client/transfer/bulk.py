"""Uploading many folders: several at once, those that are there already left out, what was refused told at the end."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.progress import Progress

from loragate.cli.client.http.api import Api, NotThere
from loragate.cli.client.http.paths import path
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.client.transfer.folders import TENSORS, adapters_in, check_folder, digest_of
from loragate.cli.client.transfer.upload import send
from loragate.cli.refusal import BAD_SETTING, Refusal

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Outcome:
    """What became of one folder. `words` say why it was refused."""

    folder: str
    name: str
    status: Literal["uploaded", "unchanged", "refused"]
    version: int | None = None
    words: str | None = None

    def row(self) -> dict[str, Any]:
        """As it is shown."""
        return asdict(self)


def upload_all(api: Api, root: Path, alias: str | None, concurrency: int) -> list[Outcome]:
    """One outcome a folder, in the folders' order. Raises Refusal when there is nothing to upload, or two of a name."""
    named = _named(root, adapters_in(root))
    with transfer() as progress, ThreadPoolExecutor(concurrency) as pool:
        whole = progress.add_task("all", total=sum(_size(folder) for folder in named.values()))

        def one(name: str, folder: Path) -> Outcome:
            outcome = _upload(api, root, name, folder, alias, progress)
            progress.advance(whole, _size(folder))
            return outcome

        return list(pool.map(one, named, named.values()))


def _named(root: Path, folders: Iterable[Path]) -> dict[str, Path]:
    """Each folder by the name its adapter gets: the path below `root`, in the letters that names have."""
    named: dict[str, Path] = {}
    for folder in folders:
        below = folder.relative_to(root).as_posix()
        name = _NOT_IN_NAMES.sub("-", folder.resolve().name if below == "." else below).strip("-.")
        if name in named:
            raise Refusal(f"{folder} and {named[name]} would both be called {name}: rename one", BAD_SETTING)
        named[name] = folder
    if not named:
        raise Refusal(f"{root} has no folder with an adapter_config.json", BAD_SETTING)
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
    except (Refusal, OSError) as error:
        return Outcome(shown, name, "refused", words=error.message if isinstance(error, Refusal) else str(error))
    finally:
        progress.remove_task(task)


def _version_of(api: Api, name: str, digest: str | None) -> int | None:
    """The adapter's version with these bytes, if it has one."""
    try:
        versions = api.every(path("v1", "adapters", name, "versions"))
        return next((int(version["version"]) for version in versions if version["digest"] == digest), None)
    except NotThere:
        return None


def _size(folder: Path) -> int:
    tensors = folder / TENSORS
    return tensors.stat().st_size if tensors.is_file() else 0
