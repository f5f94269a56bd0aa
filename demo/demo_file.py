"""`demo.json`: what users and scripts need to use the demo. It contains keys, so only its owner can read it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "demo.json"


@dataclass(frozen=True)
class TenantRecord:
    name: str
    id: str
    api_key: str
    adapters: tuple[str, ...]


@dataclass(frozen=True)
class DemoFile:
    """`assets` is the digest of the uploaded assets."""

    admin_key: str
    assets: str
    tenants: tuple[TenantRecord, ...]

    def tenant(self, name: str) -> TenantRecord | None:
        return next((tenant for tenant in self.tenants if tenant.name == name), None)


def read_demo_file(data_dir: Path) -> DemoFile | None:
    """Return the demo file, or None if it is missing or invalid; it is then written again."""
    try:
        content = json.loads((data_dir / NAME).read_bytes())
        tenants = tuple(_tenant(entry) for entry in content["tenants"])
        return DemoFile(str(content["admin_key"]), str(content.get("assets", "")), tenants)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def write_demo_file(data_dir: Path, demo: DemoFile) -> None:
    """Replace the file atomically: concurrent readers see the old content or the new."""
    content = {
        "admin_key": demo.admin_key,
        "assets": demo.assets,
        "tenants": [
            {"name": tenant.name, "id": tenant.id, "api_key": tenant.api_key, "adapters": list(tenant.adapters)}
            for tenant in demo.tenants
        ],
    }
    data_dir.mkdir(parents=True, exist_ok=True)
    unfinished = data_dir / f"{NAME}.{os.getpid()}"
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(data_dir / NAME)


def _tenant(entry: Mapping[str, Any]) -> TenantRecord:
    return TenantRecord(
        str(entry["name"]), str(entry["id"]), str(entry["api_key"]), tuple(str(name) for name in entry["adapters"])
    )
