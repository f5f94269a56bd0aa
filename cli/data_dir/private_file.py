"""Files that only their owner can read, from their first byte on."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file in place."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(content)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file atomically."""
    draft = draft_of(path)
    write_private(draft, content)
    draft.replace(path)


def draft_of(path: Path) -> Path:
    """Return where this process writes a file that is to take the place of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}")
