"""One book for all processes, in Redis."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import orjson

from loragate.gateway.limits.backend import Answer, Ask, BookAway, Refused, Reply, State, Verdict
from loragate.gateway.resilience.redis import RedisAway, RedisLink

SCRIPT = files("loragate.gateway.limits").joinpath("backend.lua").read_text()


class RedisBook:
    """A tenant's keys share a hash tag, and with it a slot of a cluster."""

    def __init__(self, link: RedisLink, script: str = SCRIPT) -> None:
        self._link = link
        self._script = link.script(script)

    async def ask(self, tenant_id: str, born: str, asks: Sequence[Ask]) -> Answer:
        """One round trip. Raises BookAway."""
        keys = [f"loragate:limits:{{{tenant_id}}}:{part}" for part in ("subjects", "leases", "expiries")]
        try:
            answer = orjson.loads(await self._link.run(self._script, keys, [born, orjson.dumps(asks)]))
        except RedisAway as error:
            raise BookAway from error
        now = float(answer["now"])
        return Answer(answer["born"], tuple(_reply(now, *each) for each in answer["replies"]))


def _reply(now: float, verdict: Verdict, refused: Iterable[Any], states: Iterable[Any]) -> Reply:
    """An empty list comes as an empty object."""
    return Reply(
        verdict,
        now,
        tuple(Refused(int(place), kind, _wait(float(wait))) for place, kind, wait in refused),
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
