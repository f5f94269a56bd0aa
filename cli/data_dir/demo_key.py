"""The demo's admin key, kept in a draft file until it is in `demo.json`."""

import json
from pathlib import Path

from loragate.cli.data_dir.private_file import write_private
from loragate.cli.errors import CliError

DEMO_FILE = "demo.json"
_DRAFT = "demo-admin-key"


def save(data_dir: Path, key: str) -> None:
    """Store a new key, so that an interrupted first start can be repeated."""
    write_private(data_dir / _DRAFT, key.encode())


def find(data_dir: Path) -> str:
    """Return the key of an earlier start. Raise CliError if only its hash is stored."""
    for read in (_from_demo_file, _from_draft):
        try:
            return read(data_dir)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    raise CliError(
        f"{data_dir} belongs to a server without a demo, whose admin key is not stored: give it as "
        "LORAGATE_ADMIN_KEY, or choose another --data-dir for the demo"
    )


def remove_draft(data_dir: Path) -> None:
    """Remove the draft once `demo.json` holds the key."""
    (data_dir / _DRAFT).unlink(missing_ok=True)


def _from_demo_file(data_dir: Path) -> str:
    return str(json.loads((data_dir / DEMO_FILE).read_text(encoding="utf-8"))["admin_key"])


def _from_draft(data_dir: Path) -> str:
    return (data_dir / _DRAFT).read_text(encoding="utf-8")
