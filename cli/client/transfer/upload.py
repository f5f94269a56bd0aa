"""Uploads of adapter folders."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.client.transfer import parts
from loragate.cli.client.transfer.folders import CONFIG, SIGNATURE, TENSORS, check_folder
from loragate.cli.errors import BAD_SETTING, CliError


def upload(api: Api, folder: Path, name: str, alias: str | None) -> dict[str, Any]:
    """Upload the files, with a progress bar on stderr, and return the new version."""
    check_folder(folder)
    with transfer_progress() as progress:
        task = progress.add_task(f"uploading {name}", total=None)
        return send(api, folder, name, alias, progress, task)


def send(api: Api, folder: Path, name: str, alias: str | None, progress: Progress, task: TaskID) -> dict[str, Any]:
    """Upload with the caller's progress bar; large files go in parts."""
    size = (folder / TENSORS).stat().st_size
    progress.update(task, total=size)
    fields = {"name": name} | ({"alias": alias} if alias else {})
    if size > parts.SMALL_BYTES:
        file_id = parts.send_in_parts(api, folder / TENSORS, progress, task)
        return parts.publish(api, fields | _texts(folder), file_id)
    return _send_at_once(api, folder, fields, progress, task)


def outcome(version: dict[str, Any], alias: str) -> str:
    """Return a sentence on whether the alias now points at the new version."""
    name, number = version["name"], version["version"]
    if version["status"] != "verifying":
        return f"{name}@{alias} is now version {number}"
    return (
        f"version {number} is stored: it becomes {name}@{alias} as soon as an engine has verified it "
        f"(see `loragate adapters show {name} --version {number}`)"
    )


def _send_at_once(api: Api, folder: Path, fields: dict[str, str], progress: Progress, task: TaskID) -> dict[str, Any]:
    with ExitStack() as stack:
        config = stack.enter_context((folder / CONFIG).open("rb"))
        tensors = stack.enter_context(progress.open(folder / TENSORS, "rb", task_id=task))
        files = {
            CONFIG: (CONFIG, config, "application/json"),
            TENSORS: (TENSORS, tensors, "application/octet-stream"),
        }
        if (folder / SIGNATURE).is_file():
            files[SIGNATURE] = (SIGNATURE, stack.enter_context((folder / SIGNATURE).open("rb")), "application/json")
        return dict(api.call("POST", "/v1/adapters", data=fields, files=files))


def _texts(folder: Path) -> dict[str, str]:
    """Return the fields of the JSON body with the small files' content."""
    files = {"adapter_config": folder / CONFIG, "signature": folder / SIGNATURE}
    return {field: _text(file) for field, file in files.items() if file.is_file()}


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()  # byte for byte, as it was signed
    except UnicodeDecodeError:
        raise CliError(f"{file} is not UTF-8", BAD_SETTING) from None
