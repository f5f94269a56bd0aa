"""Readiness: whether this process can serve, and if not, why."""

import json
from pathlib import Path
from typing import Any

from loragate.gateway.services import Services

_OK = "ok"


async def readiness(services: Services) -> dict[str, str]:
    """Return each part with "ok" or the reason why it is not ready."""
    return {
        "gateway": "shutting down" if services.lifecycle.draining else _OK,
        "database": await services.database_check.state(),
        "engine": _OK if services.link.ready else "not connected",
    }


def engine_troubles(services: Services) -> dict[str, str]:
    """Return the engines of a fleet of several that are not used, each with the reason."""
    members = services.link.fleet.members
    return {member.id: member.state for member in members if not member.ready} if len(members) > 1 else {}


def is_ready(parts: dict[str, str]) -> bool:
    """Return whether all parts are ready."""
    return all(state == _OK for state in parts.values())


_FILE = "runtime.json"  # written by the supervisor into the data directory


def optional_parts(data_dir: Path) -> dict[str, str | None]:
    """Return the optional parts by name, each with its problem or None. Without a supervisor none are known."""
    try:
        content: Any = json.loads((data_dir / _FILE).read_text(encoding="utf-8"))
        return dict(content["optional"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
