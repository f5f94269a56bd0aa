"""Connections to the API as a tenant or as the operator: which server, and which key.

A key of the user's goes only to a server that the user named, or started in this folder. A server that only a file in
the current folder names gets keys of that folder and no others: the author of the folder may have named a server of
their own.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loragate.cli.client.http.api import Api
from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.demo_key import DEMO_FILE
from loragate.cli.data_dir.lock import FILE_NAME as LOCK_FILE
from loragate.cli.data_dir.lock import is_locked
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.settings.sources import Source, check_ours, source_of
from loragate.engine.link_security import is_local
from loragate.gateway.connections.tls import ANY_VALID, ClientTls


@dataclass(frozen=True)
class Server:
    """A server's address. `is_users` means that the user's keys may go there; `tls` is what it must show, and is
    shown."""

    base_url: str
    is_users: bool
    tls: ClientTls = ANY_VALID


def as_tenant(base_url: str | None, api_key: str | None, data_dir: Path | None, model: str | None = None) -> Api:
    """Open the API with a tenant's key. Without one, `model` selects among the demo's tenants."""
    options = {"base_url": base_url, "api_key": key_from(api_key), "data_dir": data_dir}
    settings = load(**options)
    server = find_server(settings, options)
    return Api(server.base_url, find_api_key(settings, options, server, model), server.tls)


def as_operator(base_url: str | None, admin_key: str | None, data_dir: Path | None) -> Api:
    """Open the API with the admin key."""
    options = {"base_url": base_url, "admin_key": key_from(admin_key), "data_dir": data_dir}
    settings = load(**options)
    server = find_server(settings, options)
    return Api(server.base_url, find_admin_key(settings, options, server), server.tls)


def key_from(option: str | None) -> str | None:
    """Return the key that an option gives: as it is, or with @ the content of a file, because other users of the
    machine can read command lines."""
    if option is None or not option.startswith("@"):
        return option
    path = Path(option[1:]).expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"the key's file {path} cannot be read: {error}", BAD_SETTING) from None


def find_server(settings: Settings, options: Mapping[str, object]) -> Server:
    """Return the configured server, else the one that runs in the data directory."""
    if settings.base_url is not None:
        is_users = source_of("base_url", options).is_users
        shown = settings.client_cert if is_users or not source_of("client_cert", options).is_users else None
        tls = ClientTls(_certificate(settings, settings.base_url), shown)
        return Server(_without_suffix(settings.base_url), is_users, tls)
    running = runtime_file.read(settings.data_dir)
    if running is None or not _runs_here(settings.data_dir, source_of("data_dir", options)):
        raise CliError(
            f"no server runs in {settings.data_dir}: start one with `loragate serve`, or give its address with "
            "--base-url or LORAGATE_BASE_URL"
        )
    return Server(_without_suffix(running.base_url), True, ClientTls(running.tls_cert, running.client_cert))


def find_admin_key(settings: Settings, options: Mapping[str, object], server: Server) -> str:
    """Return the configured admin key, else the demo's. Raise CliError if it is not for this server."""
    if settings.admin_key is not None:
        _check_sent_to(server, source_of("admin_key", options), "admin key")
        return settings.admin_key.get_secret_value()
    key = _demo(settings.data_dir).get("admin_key")
    if not isinstance(key, str):
        raise CliError("no admin key: give --admin-key or LORAGATE_ADMIN_KEY; it was printed at the first start")
    _check_sent_to(server, source_of("data_dir", options), "demo's admin key")
    return key


def find_api_key(settings: Settings, options: Mapping[str, object], server: Server, model: str | None = None) -> str:
    """Return the configured key, else that of the demo's tenant that owns `model`, else of the demo's first tenant.

    Raise CliError if it is not for this server.
    """
    if settings.api_key is not None:
        _check_sent_to(server, source_of("api_key", options), "API key")
        return settings.api_key.get_secret_value()
    openai_key, openai_url = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL", "")
    if openai_key and _without_suffix(openai_url) == server.base_url:
        return openai_key
    tenants = [tenant for tenant in _demo(settings.data_dir).get("tenants", []) if "api_key" in tenant]
    if not tenants:
        raise CliError("no API key: give --api-key or LORAGATE_API_KEY; create one with `loragate keys create TENANT`")
    _check_sent_to(server, source_of("data_dir", options), "demo's API key")
    owners = [tenant for tenant in tenants if model is not None and _adapter_of(model) in tenant.get("adapters", ())]
    return str((owners or tenants)[0]["api_key"])


def _check_sent_to(server: Server, source: Source, key: str) -> None:
    """Raise CliError if a key from this source must not go to the server."""
    if source.is_users and not server.is_users:
        raise CliError(
            f"{server.base_url} is named by {Source.FOLDER_FILE.value} only, so your {key} is not sent there: if you "
            "trust this server, give --base-url or set LORAGATE_BASE_URL",
            BAD_SETTING,
        )


def _runs_here(data_dir: Path, source: Source) -> bool:
    """Return whether a server of this user runs in the directory. A user who named the directory vouches for it; the
    one in the current folder could be part of somebody's archive. Raise CliError if others can write to it."""
    if source.is_users:
        return True
    otherwise = "name it with --data-dir or LORAGATE_DATA_DIR if you trust it"
    for path in (data_dir, data_dir / runtime_file.FILE_NAME, data_dir / LOCK_FILE):
        if not path.exists():
            return False
        check_ours(path, otherwise)
    return is_locked(data_dir)


def _certificate(settings: Settings, base_url: str) -> Path | None:
    """Return the certificate of this machine's own server for an address of this machine."""
    parts = urlsplit(base_url)
    ours = parts.scheme == "https" and is_local(f"{parts.hostname}:0")
    return settings.tls_cert if ours else None


def _without_suffix(base_url: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1")


def _adapter_of(model: str) -> str:
    """Return the adapter's name in `name:version` and `name@alias`."""
    return model.split(":")[0].split("@")[0]


def _demo(data_dir: Path) -> dict[str, Any]:
    try:
        content = json.loads((data_dir / DEMO_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
