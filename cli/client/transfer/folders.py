"""Folders that PEFT saved."""

from collections.abc import Iterator
from pathlib import Path

from loragate.cli.refusal import BAD_SETTING, Refusal

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"


def check_folder(folder: Path) -> None:
    """Raises Refusal that says which file is missing and what makes it."""
    if (folder / CONFIG).is_file() and (folder / TENSORS).is_file():
        return
    missing = TENSORS if (folder / CONFIG).is_file() else CONFIG
    hint = "`model.save_pretrained(folder)` of PEFT writes both files"
    if missing == TENSORS and (folder / "adapter_model.bin").exists():
        hint = "adapter_model.bin is a pickle, which loragate never reads: save it again with safe_serialization=True"
    raise Refusal(f"{folder} has no {missing}: {hint}", BAD_SETTING)


def adapters_in(root: Path) -> Iterator[Path]:
    """Every folder in there, at any depth, that has a config of PEFT's, in order."""
    return (config.parent for config in sorted(root.rglob(CONFIG)))


def digest_of(folder: Path) -> str | None:
    """What a server would call the adapter; None for one that it would refuse whatever its base model."""
    from loragate.peft_format.config.lora_config import parse_config
    from loragate.peft_format.digest import adapter_digest
    from loragate.peft_format.errors import AdapterRefused
    from loragate.peft_format.safetensors.header import read_header

    tensors = folder / TENSORS
    try:
        with tensors.open("rb") as file:
            header = read_header(file, tensors.stat().st_size)
            return adapter_digest(parse_config((folder / CONFIG).read_bytes()), header, file)
    except (AdapterRefused, OSError):
        return None
