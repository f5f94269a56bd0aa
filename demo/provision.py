"""Creates the demo's tenants, keys and adapters on a running server, through its HTTP API."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from loragate.demo.assets import DemoAssets, DemoTenant
from loragate.demo.demo_file import DemoFile, TenantRecord, read_demo_file, write_demo_file

_TIMEOUT_S = 60.0
_CONFIG, _TENSORS = "adapter_config.json", "adapter_model.safetensors"


class ProvisionError(Exception):
    """The server rejected a request; the message has the request and the response."""


def provision(
    assets: DemoAssets, base_url: str, admin_key: str, data_dir: Path, *, verify: ssl.SSLContext | bool = True
) -> None:
    """Create what is missing, keep what exists, and write `data_dir/demo.json` (mode 0600).

    Keys in an existing `demo.json` are kept as long as they work. An adapter is uploaded if the tenant has none of that
    name, or if it is from another build than last time. `verify` is how a server with TLS is verified. Raise
    ProvisionError or httpx.TransportError.
    """
    known = read_demo_file(data_dir)
    # The server is local: a proxy from the environment must not be used.
    with httpx.Client(base_url=base_url, timeout=_TIMEOUT_S, trust_env=False, verify=verify) as client:
        tenants = tuple(_provision_tenant(client, admin_key, tenant, known, assets.digest) for tenant in assets.tenants)
    demo = DemoFile(admin_key, assets.digest, tenants)
    if demo != known:
        write_demo_file(data_dir, demo)


def _provision_tenant(
    client: httpx.Client, admin_key: str, tenant: DemoTenant, known: DemoFile | None, digest: str
) -> TenantRecord:
    record = known.tenant(tenant.name) if known else None
    if record is None or not _works(client, record.api_key):
        record = _create_access(client, admin_key, tenant)
    same_build = known is not None and known.assets == digest
    present = {item["name"] for item in _list(client, "/v1/adapters", record.api_key)} if same_build else set()
    for name, directory in tenant.adapters.items():
        if name not in present:
            _upload(client, record.api_key, name, directory)
    return TenantRecord(tenant.name, record.id, record.api_key, tuple(tenant.adapters))


def _works(client: httpx.Client, key: str) -> bool:
    response = client.get("/v1/adapters", params={"limit": 1}, headers=_bearer(key))
    if response.status_code in (401, 403):
        return False
    _require_success(response)
    return True


def _create_access(client: httpx.Client, admin_key: str, tenant: DemoTenant) -> TenantRecord:
    """Create a key for the tenant, and the tenant if none has that name."""
    tenants = _list(client, "/admin/v1/tenants", admin_key)
    tenant_id = next((item["id"] for item in tenants if item["name"] == tenant.name), None)
    if tenant_id is None:
        tenant_id = _post(client, "/admin/v1/tenants", admin_key, json={"name": tenant.name})["id"]
    key = _post(client, f"/admin/v1/tenants/{tenant_id}/keys", admin_key, json={"name": "demo"})
    return TenantRecord(tenant.name, tenant_id, key["secret"], ())


def _upload(client: httpx.Client, key: str, name: str, directory: Path) -> None:
    files = {
        _CONFIG: (_CONFIG, (directory / _CONFIG).read_bytes(), "application/json"),
        _TENSORS: (_TENSORS, (directory / _TENSORS).read_bytes(), "application/octet-stream"),
    }
    _post(client, "/v1/adapters", key, data={"name": name}, files=files)


def _list(client: httpx.Client, path: str, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield every item of a paginated list."""
    params: dict[str, str | int] = {"limit": 100}
    while True:
        page = _require_success(client.get(path, params=params, headers=_bearer(key)))
        yield from page["data"]
        if not page["has_more"]:
            return
        params["after"] = page["last_id"]


def _post(client: httpx.Client, path: str, key: str, **body: Any) -> Mapping[str, Any]:
    return _require_success(client.post(path, headers=_bearer(key), **body))


def _require_success(response: httpx.Response) -> Mapping[str, Any]:
    if response.is_success:
        content: Mapping[str, Any] = response.json()
        return content
    request = response.request
    raise ProvisionError(f"{request.method} {request.url.path} returned {response.status_code}: {_reason(response)}")


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return response.reason_phrase


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
