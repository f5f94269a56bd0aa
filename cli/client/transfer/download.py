"""Downloads of files, byte for byte as they are stored."""

from pathlib import Path

from rich.progress import Progress

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.client.transfer.folders import CONFIG, TENSORS
from loragate.cli.errors import BAD_SETTING, CliError


def download(api: Api, name: str, version: int, folder: Path) -> None:
    """Write both files into `folder`, which is created. Raise CliError if one exists already."""
    for file in (CONFIG, TENSORS):
        if (folder / file).exists():
            raise CliError(f"{folder / file} exists already: choose another folder", BAD_SETTING)
    folder.mkdir(parents=True, exist_ok=True)
    with transfer_progress() as progress:
        for file in (CONFIG, TENSORS):
            _fetch(api, path("v1", "adapters", name, "versions", version, "files", file), folder / file, progress)


def fetch(api: Api, url: str, to: Path) -> None:
    """Write a file, with a progress bar on stderr. Raise CliError."""
    with transfer_progress() as progress:
        _fetch(api, url, to, progress)


def _fetch(api: Api, url: str, to: Path, progress: Progress) -> None:
    """Write a file under a temporary name until it is complete."""
    draft = to.with_name(f"{to.name}.part")
    try:
        with api.stream("GET", url) as response, draft.open("wb") as file:
            length = response.headers.get("content-length")
            task = progress.add_task(to.name, total=int(length) if length else None)
            for piece in response.iter_bytes():
                file.write(piece)
                progress.advance(task, len(piece))
        draft.rename(to)
    finally:
        draft.unlink(missing_ok=True)
