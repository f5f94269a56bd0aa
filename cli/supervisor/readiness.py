"""Waiting until the gateway says that everything is ready."""

import asyncio
from collections.abc import Callable

import httpx

_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 5.0


async def until_ready(base_url: str, say: Callable[[str], None]) -> None:
    """Returns when `/readyz` answers 200; says what is missing whenever that changes."""
    missing = ""
    async with httpx.AsyncClient(base_url=base_url, timeout=_ANSWER_SECONDS, trust_env=False) as client:
        while True:
            found = await _missing(client)
            if not found:
                return
            if found != missing:
                say(f"waiting for {found}")
            missing = found
            await asyncio.sleep(_POLL_SECONDS)


async def _missing(client: httpx.AsyncClient) -> str:
    try:
        answer = await client.get("/readyz")
    except httpx.HTTPError:
        return "the gateway"
    return "" if answer.status_code == httpx.codes.OK else not_ready_in(answer)


def not_ready_in(answer: httpx.Response) -> str:
    """The parts that a `/readyz` other than 200 names, each with its reason."""
    try:
        parts = answer.json()["parts"].items()
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"the gateway (status {answer.status_code})"
    return ", ".join(f"{part} ({state})" for part, state in parts if state != "ok") or "the gateway"
