"""The parts without which this server serves all the same, as its supervisor tells of them."""

import json
from pathlib import Path
from typing import Any

_FILE = "runtime.json"  # which the supervisor keeps in the data directory


def optional_parts(data_dir: Path) -> dict[str, str | None]:
    """By name what is wrong with each, None for nothing. Without a supervisor none is known."""
    try:
        content: Any = json.loads((data_dir / _FILE).read_text(encoding="utf-8"))
        return dict(content["optional"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
