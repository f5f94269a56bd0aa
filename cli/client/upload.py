"""Uploading the folder that PEFT saved."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from loragate.cli.client.api import Api
from loragate.cli.client.folders import CONFIG, TENSORS, check_folder
from loragate.cli.client.progress import transfer


def upload(api: Api, folder: Path, name: str, alias: str | None) -> dict[str, Any]:
    """Sends both files, with a progress bar on stderr; returns the new version."""
    check_folder(folder)
    with transfer() as progress:
        task = progress.add_task(f"uploading {name}", total=None)
        return send(api, folder, name, alias, progress, task)


def send(api: Api, folder: Path, name: str, alias: str | None, progress: Progress, task: TaskID) -> dict[str, Any]:
    """The same, with a bar that somebody else shows."""
    progress.update(task, total=(folder / TENSORS).stat().st_size)
    with ExitStack() as stack:
        config = stack.enter_context((folder / CONFIG).open("rb"))
        tensors = stack.enter_context(progress.open(folder / TENSORS, "rb", task_id=task))
        files = {
            CONFIG: (CONFIG, config, "application/json"),
            TENSORS: (TENSORS, tensors, "application/octet-stream"),
        }
        fields = {"name": name} | ({"alias": alias} if alias else {})
        return dict(api.call("POST", "/v1/adapters", data=fields, files=files))
