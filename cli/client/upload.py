"""Uploading the folder that PEFT saved."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from loragate.cli.client.api import Api
from loragate.cli.refusal import BAD_SETTING, Refusal

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"


def upload(api: Api, folder: Path, name: str, alias: str | None) -> dict[str, Any]:
    """Sends both files, with a progress bar on stderr; returns the new version."""
    check_folder(folder)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
    )
    with ExitStack() as stack:
        config = stack.enter_context((folder / CONFIG).open("rb"))
        stack.enter_context(progress)
        tensors = stack.enter_context(progress.open(folder / TENSORS, "rb", description=f"uploading {name}"))
        files = {
            CONFIG: (CONFIG, config, "application/json"),
            TENSORS: (TENSORS, tensors, "application/octet-stream"),
        }
        fields = {"name": name} | ({"alias": alias} if alias else {})
        return dict(api.call("POST", "/v1/adapters", data=fields, files=files))


def check_folder(folder: Path) -> None:
    """Raises Refusal that says which file is missing and what makes it."""
    if (folder / CONFIG).is_file() and (folder / TENSORS).is_file():
        return
    missing = TENSORS if (folder / CONFIG).is_file() else CONFIG
    hint = "`model.save_pretrained(folder)` of PEFT writes both files"
    if missing == TENSORS and (folder / "adapter_model.bin").exists():
        hint = "adapter_model.bin is a pickle, which loragate never reads: save it again with safe_serialization=True"
    raise Refusal(f"{folder} has no {missing}: {hint}", BAD_SETTING)
