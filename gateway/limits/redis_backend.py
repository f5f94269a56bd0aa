"""The limit backend that all processes share, in Redis."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import orjson

from loragate.gateway.limits.backend import (
    BackendResponse,
    BackendUnavailable,
    ExceededLimit,
    OperationResult,
    SubjectState,
    Verdict,
)
from loragate.gateway.limits.operations import Operation
from loragate.gateway.resilience.redis import RedisLink, RedisUnavailable

SCRIPT = files("loragate.gateway.limits").joinpath("backend.lua").read_text()


class RedisBackend:
    """Runs `backend.lua`. A tenant's keys share a hash tag, and so a slot of a Redis cluster."""

    def __init__(self, link: RedisLink, script: str = SCRIPT) -> None:
        self._link = link
        self._script = link.script(script)

    async def execute(self, tenant_id: str, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        """Execute the operations in one round trip. Raise BackendUnavailable."""
        start = f"{self._link.prefix}:limits:{{{tenant_id}}}"
        keys = [f"{start}:{part}" for part in ("subjects", "leases", "expiries")]
        arguments: list[str | bytes] = [incarnation, orjson.dumps([operation.wire for operation in operations])]
        try:
            response = orjson.loads(await self._link.run(self._script, keys, arguments))
        except RedisUnavailable as error:
            raise BackendUnavailable from error
        now = float(response["now"])
        return BackendResponse(response["born"], tuple(_result(now, *each) for each in response["replies"]))


def _result(now: float, verdict: Verdict, exceeded: Iterable[Any], states: Iterable[Any]) -> OperationResult:
    """Convert the script's reply, in which an empty list is an empty object."""
    return OperationResult(
        verdict,
        now,
        tuple(ExceededLimit(int(subject), kind, _wait(float(wait))) for subject, kind, wait in exceeded),
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
) -> SubjectState:
    return SubjectState(
        requests=requests,
        tokens=tokens,
        day=int(day),
        day_tokens=int(day_tokens),
        month=int(month),
        month_tokens=int(month_tokens),
        in_flight=int(in_flight),
    )
