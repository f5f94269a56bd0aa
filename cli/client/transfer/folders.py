"""Adapter folders as PEFT saves them."""

from collections.abc import Iterator
from pathlib import Path

from loragate.cli.errors import BAD_SETTING, CliError

CONFIG = "adapter_config.json"
TENSORS = "adapter_model.safetensors"
SIGNATURE = "model.sig"


def check_folder(folder: Path) -> None:
    """Raise CliError if a file is missing, with the way to create it."""
    if (folder / CONFIG).is_file() and (folder / TENSORS).is_file():
        return
    missing = TENSORS if (folder / CONFIG).is_file() else CONFIG
    hint = "`model.save_pretrained(folder)` of PEFT writes both files"
    if missing == TENSORS and (folder / "adapter_model.bin").exists():
        hint = "adapter_model.bin is a pickle, which loragate never reads: save it again with safe_serialization=True"
    raise CliError(f"{folder} has no {missing}: {hint}", BAD_SETTING)


def adapters_in(root: Path) -> Iterator[Path]:
    """Yield every folder below `root`, at any depth, that has a PEFT config, in sorted order."""
    return (config.parent for config in sorted(root.rglob(CONFIG)))


def digest_of(folder: Path) -> str | None:
    """Return the digest that a server would compute; None for an adapter that no server would accept."""
    from loragate.peft_format.config.lora_config import parse_config
    from loragate.peft_format.digest import adapter_digest
    from loragate.peft_format.errors import AdapterRejected
    from loragate.peft_format.safetensors.header import read_header

    tensors = folder / TENSORS
    try:
        with tensors.open("rb") as file:
            header = read_header(file, tensors.stat().st_size)
            return adapter_digest(parse_config((folder / CONFIG).read_bytes()), header, file)
    except (AdapterRejected, OSError):
        return None
