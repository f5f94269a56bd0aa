"""Waiting until every gateway worker is ready."""

import asyncio
import re
from collections.abc import Callable, Collection
from typing import Any

import httpx

from loragate.cli.data_dir.runtime_file import Addresses
from loragate.gateway.connections.tls import ClientTls

_POLL_SECONDS = 0.25
_RESPONSE_SECONDS = 5.0
_STARTING_ENGINE = ("engine", "not connected")  # in `/readyz`
_GATEWAY, _ENGINE = "the gateway", "the engine"
USUAL = (_GATEWAY, _ENGINE)  # what every start waits for
_READY_WORKERS = re.compile(r"^loragate_gateway_ready_workers (\S+)$", re.MULTILINE)


async def until_ready(where: Addresses, workers: int, engines: Collection[str], notify: Callable[[str], None]) -> None:
    """Return when `/readyz` responds with 200, and these engines and this many workers are ready. Reports what is
    missing when it changes."""
    missing = ""
    async with local_client(where.tls, base_url=where.base_url, timeout=_RESPONSE_SECONDS) as client:
        while True:
            found = await _missing_parts(client, workers, engines)
            if not found:
                return
            if found != missing:
                notify(found)
            missing = found
            await asyncio.sleep(_POLL_SECONDS)


def local_client(tls: ClientTls | None, **options: Any) -> httpx.AsyncClient:
    """Return a client of a port of this server."""
    return httpx.AsyncClient(trust_env=False, verify=True if tls is None else tls.context(), **options)


async def _missing_parts(client: httpx.AsyncClient, workers: int, engines: Collection[str]) -> str:
    try:
        response = await client.get("/readyz")
        if response.status_code != httpx.codes.OK:
            return not_ready_in(response)
        missing = [f"{part} ({why})" for part, why in degraded_in(response).items() if part in engines]
        if missing:
            return ", ".join(missing)
        # One worker has responded; its metrics cover all of them.
        metrics = await client.get("/metrics") if workers > 1 else None
    except httpx.HTTPError:
        return _GATEWAY
    ready = workers if metrics is None else _ready_workers_in(metrics)
    return "" if ready >= workers else f"gateway workers ({ready} of {workers} are ready)"


def _ready_workers_in(metrics: httpx.Response) -> int:
    found = _READY_WORKERS.search(metrics.text)
    return int(float(found[1])) if found else 0


def not_ready_in(response: httpx.Response) -> str:
    """Return the parts that are not ready according to `/readyz`, each with its state."""
    try:
        parts = response.json()["parts"].items()
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"the gateway (status {response.status_code})"
    missing = [(part, state) for part, state in parts if state not in ("ok", "degraded")]
    shown = [_ENGINE if each == _STARTING_ENGINE else f"{each[0]} ({each[1]})" for each in missing]
    return ", ".join(shown) or _GATEWAY


def degraded_in(response: httpx.Response) -> dict[str, str]:
    """Return the degraded parts according to `/readyz`, each with the reason."""
    try:
        return dict(response.json()["degraded"])
    except (ValueError, LookupError, TypeError):
        return {}
