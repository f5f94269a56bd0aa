"""Which server our commands talk to, and with which key."""

import json
import os
from pathlib import Path
from typing import Any

from loragate.cli.refusal import Refusal
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import runtime_file
from loragate.cli.supervisor.demo_key import DEMO_FILE


def find_base_url(settings: Settings) -> str:
    """The configured address, else that of the server that runs in the data directory."""
    url = settings.base_url or runtime_file.base_url(settings.data_dir)
    if url is None:
        raise Refusal(
            f"no server runs in {settings.data_dir}: start one with `loragate serve`, or say where it is with "
            "--base-url or LORAGATE_BASE_URL"
        )
    return url.rstrip("/").removesuffix("/v1")


def find_admin_key(settings: Settings) -> str:
    """The configured admin key, else the demo's."""
    if settings.admin_key is not None:
        return settings.admin_key.get_secret_value()
    key = _demo(settings.data_dir).get("admin_key")
    if not isinstance(key, str):
        raise Refusal("no admin key: give --admin-key or LORAGATE_ADMIN_KEY; it was printed at the first start")
    return key


def find_api_key(settings: Settings, model: str | None = None) -> str:
    """The configured tenant's key, else that of the demo's tenant that has `model`, else of its first tenant."""
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    if os.environ.get("OPENAI_API_KEY"):
        return os.environ["OPENAI_API_KEY"]
    tenants = [tenant for tenant in _demo(settings.data_dir).get("tenants", []) if "api_key" in tenant]
    if not tenants:
        raise Refusal("no API key: give --api-key or LORAGATE_API_KEY; `loragate keys create TENANT` makes one")
    owners = [tenant for tenant in tenants if model is not None and _adapter_of(model) in tenant.get("adapters", ())]
    return str((owners or tenants)[0]["api_key"])


def _adapter_of(model: str) -> str:
    """The adapter's name in `name:version` and `name@alias`."""
    return model.split(":")[0].split("@")[0]


def _demo(data_dir: Path) -> dict[str, Any]:
    try:
        content = json.loads((data_dir / DEMO_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
