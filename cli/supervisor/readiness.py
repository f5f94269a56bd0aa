"""Waiting until every gateway worker says that everything is ready."""

import asyncio
import re
from collections.abc import Callable

import httpx

_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 5.0
_READY_WORKERS = re.compile(r"^loragate_gateway_ready_workers (\S+)$", re.MULTILINE)


async def until_ready(base_url: str, workers: int, say: Callable[[str], None]) -> None:
    """Returns when `/readyz` answers 200 and so many workers are ready; says what is missing whenever that changes."""
    missing = ""
    async with httpx.AsyncClient(base_url=base_url, timeout=_ANSWER_SECONDS, trust_env=False) as client:
        while True:
            found = await _missing(client, workers)
            if not found:
                return
            if found != missing:
                say(f"waiting for {found}")
            missing = found
            await asyncio.sleep(_POLL_SECONDS)


async def _missing(client: httpx.AsyncClient, workers: int) -> str:
    try:
        answer = await client.get("/readyz")
        if answer.status_code != httpx.codes.OK:
            return not_ready_in(answer)
        # One of them has answered. Its metrics tell of all.
        metrics = await client.get("/metrics") if workers > 1 else None
    except httpx.HTTPError:
        return "the gateway"
    ready = workers if metrics is None else _ready_workers_in(metrics)
    return "" if ready >= workers else f"gateway workers ({ready} of {workers} are ready)"


def _ready_workers_in(metrics: httpx.Response) -> int:
    found = _READY_WORKERS.search(metrics.text)
    return int(float(found[1])) if found else 0


def not_ready_in(answer: httpx.Response) -> str:
    """The parts that a `/readyz` other than 200 names, each with its reason."""
    try:
        parts = answer.json()["parts"].items()
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"the gateway (status {answer.status_code})"
    return ", ".join(f"{part} ({state})" for part, state in parts if state not in ("ok", "degraded")) or "the gateway"
