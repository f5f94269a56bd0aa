"""Connections to the API as a tenant or as the operator: which server, and which key."""

import json
import os
from pathlib import Path
from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.demo_key import DEMO_FILE
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings


def as_tenant(base_url: str | None, api_key: str | None, data_dir: Path | None, model: str | None = None) -> Api:
    """Open the API with a tenant's key. Without one, `model` selects among the demo's tenants."""
    settings = load(base_url=base_url, api_key=api_key, data_dir=data_dir)
    return Api(find_base_url(settings), find_api_key(settings, model))


def as_operator(base_url: str | None, admin_key: str | None, data_dir: Path | None) -> Api:
    """Open the API with the admin key."""
    settings = load(base_url=base_url, admin_key=admin_key, data_dir=data_dir)
    return Api(find_base_url(settings), find_admin_key(settings))


def find_base_url(settings: Settings) -> str:
    """Return the configured address, else that of the server that runs in the data directory."""
    url = settings.base_url or runtime_file.base_url(settings.data_dir)
    if url is None:
        raise CliError(
            f"no server runs in {settings.data_dir}: start one with `loragate serve`, or give its address with "
            "--base-url or LORAGATE_BASE_URL"
        )
    return url.rstrip("/").removesuffix("/v1")


def find_admin_key(settings: Settings) -> str:
    """Return the configured admin key, else the demo's."""
    if settings.admin_key is not None:
        return settings.admin_key.get_secret_value()
    key = _demo(settings.data_dir).get("admin_key")
    if not isinstance(key, str):
        raise CliError("no admin key: give --admin-key or LORAGATE_ADMIN_KEY; it was printed at the first start")
    return key


def find_api_key(settings: Settings, model: str | None = None) -> str:
    """Return the configured key, else that of the demo's tenant that owns `model`, else of the demo's first tenant."""
    if settings.api_key is not None:
        return settings.api_key.get_secret_value()
    if os.environ.get("OPENAI_API_KEY"):
        return os.environ["OPENAI_API_KEY"]
    tenants = [tenant for tenant in _demo(settings.data_dir).get("tenants", []) if "api_key" in tenant]
    if not tenants:
        raise CliError("no API key: give --api-key or LORAGATE_API_KEY; create one with `loragate keys create TENANT`")
    owners = [tenant for tenant in tenants if model is not None and _adapter_of(model) in tenant.get("adapters", ())]
    return str((owners or tenants)[0]["api_key"])


def _adapter_of(model: str) -> str:
    """Return the adapter's name in `name:version` and `name@alias`."""
    return model.split(":")[0].split("@")[0]


def _demo(data_dir: Path) -> dict[str, Any]:
    try:
        content = json.loads((data_dir / DEMO_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
