"""A version's two files, byte for byte as they were uploaded."""

from pathlib import Path

from rich.progress import Progress

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.paths import path
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.client.transfer.folders import CONFIG, TENSORS
from loragate.cli.refusal import BAD_SETTING, Refusal


def download(api: Api, name: str, version: int, folder: Path) -> None:
    """Writes both into `folder`, which is made. Raises Refusal rather than write over a file."""
    for file in (CONFIG, TENSORS):
        if (folder / file).exists():
            raise Refusal(f"{folder / file} is there already: name another folder", BAD_SETTING)
    folder.mkdir(parents=True, exist_ok=True)
    with transfer() as progress:
        for file in (CONFIG, TENSORS):
            _fetch(api, path("v1", "adapters", name, "versions", version, "files", file), folder / file, progress)


def _fetch(api: Api, url: str, to: Path, progress: Progress) -> None:
    """Under another name until it is whole."""
    draft = to.with_name(f"{to.name}.part")
    try:
        with api.stream("GET", url) as answer, draft.open("wb") as file:
            length = answer.headers.get("content-length")
            task = progress.add_task(to.name, total=int(length) if length else None)
            for piece in answer.iter_bytes():
                file.write(piece)
                progress.advance(task, len(piece))
        draft.rename(to)
    finally:
        draft.unlink(missing_ok=True)
