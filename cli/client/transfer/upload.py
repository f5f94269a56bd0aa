"""Uploading the folder that PEFT saved."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.client.transfer import parts
from loragate.cli.client.transfer.folders import CONFIG, TENSORS, check_folder
from loragate.cli.refusal import BAD_SETTING, Refusal


def upload(api: Api, folder: Path, name: str, alias: str | None) -> dict[str, Any]:
    """Sends both files, with a progress bar on stderr; returns the new version."""
    check_folder(folder)
    with transfer() as progress:
        task = progress.add_task(f"uploading {name}", total=None)
        return send(api, folder, name, alias, progress, task)


def send(api: Api, folder: Path, name: str, alias: str | None, progress: Progress, task: TaskID) -> dict[str, Any]:
    """The same, with a bar that somebody else shows. What is large goes in parts."""
    size = (folder / TENSORS).stat().st_size
    progress.update(task, total=size)
    fields = {"name": name} | ({"alias": alias} if alias else {})
    if size > parts.SMALL_BYTES:
        file_id = parts.send_in_parts(api, folder / TENSORS, progress, task)
        return parts.publish(api, fields, _config(folder), file_id)
    return _send_at_once(api, folder, fields, progress, task)


def outcome(version: dict[str, Any], alias: str) -> str:
    """What the new version means for who uses the alias."""
    name, number = version["name"], version["version"]
    if version["status"] != "verifying":
        return f"{name}@{alias} is version {number} now"
    return (
        f"version {number} is kept: it becomes {name}@{alias} by itself once an engine is there to try it "
        f"(`loragate adapters show {name} --version {number}` tells)"
    )


def _send_at_once(api: Api, folder: Path, fields: dict[str, str], progress: Progress, task: TaskID) -> dict[str, Any]:
    with ExitStack() as stack:
        config = stack.enter_context((folder / CONFIG).open("rb"))
        tensors = stack.enter_context(progress.open(folder / TENSORS, "rb", task_id=task))
        files = {
            CONFIG: (CONFIG, config, "application/json"),
            TENSORS: (TENSORS, tensors, "application/octet-stream"),
        }
        return dict(api.call("POST", "/v1/adapters", data=fields, files=files))


def _config(folder: Path) -> str:
    try:
        return (folder / CONFIG).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refusal(f"{folder / CONFIG} is not UTF-8", BAD_SETTING) from None
