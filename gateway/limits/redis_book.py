"""One book for all processes, in Redis."""

from importlib.resources import files
from typing import Any

import orjson

from loragate.gateway.limits.book import BookAway, Refused, Reply, State
from loragate.gateway.redis_link import RedisAway, RedisLink

SCRIPT = files("loragate.gateway.limits").joinpath("book.lua").read_text()


class RedisBook:
    """A tenant's keys share a hash tag, and with it a slot of a cluster."""

    def __init__(self, link: RedisLink, script: str = SCRIPT) -> None:
        self._link = link
        self._script = link.script(script)

    async def ask(self, what: str, tenant_id: str, born: str, details: dict[str, Any]) -> Reply:
        """One round trip. Raises BookAway."""
        keys = [f"loragate:limits:{{{tenant_id}}}:{part}" for part in ("subjects", "leases", "expiries")]
        try:
            answer = await self._link.run(self._script, keys, [what, born, orjson.dumps(details)])
        except RedisAway as error:
            raise BookAway from error
        verdict, now_born, now, refused, states = answer
        return Reply(
            verdict.decode(),
            now_born.decode(),
            float(now),
            tuple(Refused(int(place), kind.decode(), _wait(float(wait))) for place, kind, wait in refused),
            tuple(_state(*map(float, each)) for each in states),
        )


def _wait(wait: float) -> float | None:
    return None if wait < 0 else wait


def _state(
    requests: float,
    tokens: float,
    day: float,
    day_tokens: float,
    month: float,
    month_tokens: float,
    in_flight: float,
) -> State:
    return State(requests, tokens, int(day), int(day_tokens), int(month), int(month_tokens), int(in_flight))
