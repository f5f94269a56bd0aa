"""`runtime.json` in the data directory: where a running server is, for scripts and for our own commands."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE_NAME = "runtime.json"


@dataclass(frozen=True)
class Pids:
    """Process ids; None for a part that does not run."""

    supervisor: int
    gateway: tuple[int, ...]
    engine: int | None
    finetune: int | None = None
    panel: int | None = None


@dataclass(frozen=True)
class Runtime:
    """Where the parts of one running server are reached; None for a part that does not run.

    `optional` are the parts without which it serves all the same: each with what is wrong with it, None for nothing.
    """

    base_url: str
    pids: Pids
    grpc_target: str | None = None
    panel_url: str | None = None
    optional: Mapping[str, str | None] = field(default_factory=dict)


def write(data_dir: Path, runtime: Runtime) -> None:
    """Replaces the file at once, readable by its owner only."""
    draft = data_dir / f".{FILE_NAME}.{os.getpid()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(runtime), file, indent=2)
    draft.replace(data_dir / FILE_NAME)


def remove(data_dir: Path) -> None:
    """Says that no server runs here."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)


def base_url(data_dir: Path) -> str | None:
    """The running server's address, or None when none runs here."""
    try:
        content = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    url = content.get("base_url") if isinstance(content, dict) else None
    return url if isinstance(url, str) else None


@dataclass(frozen=True)
class Addresses:
    """Known before anything runs: the supervisor holds the ports."""

    base_url: str
    grpc_target: str
    panel_url: str | None = None
