"""Futures: waiting for the outcomes of commands and samples, which any process of the installation may record."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.notices.wakeups import Wakeups
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import ErrorCategory, Outcome, RequestStatus, RunStatus, parse_request_id

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.5  # between two looks without a wake-up
_SAMPLER = ":sample:"


@dataclass(frozen=True, slots=True)
class Pending:
    """A request without an outcome yet: why it waits, for the user, which may be a limit."""

    paused: str | None = None
    is_rate_limited: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A request whose outcome is lost: the client sends it again."""


State = Outcome | Pending | Gone

_RATE_LIMITED = Pending("The tenant's training_tokens_per_minute are used up.", is_rate_limited=True)
_ENDED = Outcome.failed("The training run has ended with its session.", ErrorCategory.USER)


class Futures:
    """The futures that clients of this process wait for. All of them are read together, whenever a trainer has
    recorded something."""

    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store = store
        self._wakeups = wakeups
        self._waiting: defaultdict[tuple[str, str], dict[int, set[asyncio.Future[State]]]] = defaultdict(dict)

    async def wait(self, tenant_id: str, request_id: str, seconds: float) -> State:
        """Return the outcome of a request, or after `seconds` that it is pending. Raise NotFound, StoreError."""
        parsed = parse_request_id(request_id)
        if parsed is None:
            raise NotFound("The request does not exist.", code="request_not_found", param="request_id")
        owner, seq = parsed
        future: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[tenant_id, owner].setdefault(seq, set())
        waiting.add(future)
        try:
            state = await self._read_one(tenant_id, owner, seq)
            if not isinstance(state, Pending) or seconds <= 0:
                return state
            try:
                async with asyncio.timeout(seconds):
                    return await future
            except TimeoutError:
                state = await self._read_one(tenant_id, owner, seq)
            if state == Pending() and _SAMPLER not in owner:
                async with self._store.tenant(tenant_id) as scope:
                    return _RATE_LIMITED if await scope.training_runs.are_rate_limited() else state
            return state
        finally:
            waiting.discard(future)
            self._tidy(tenant_id, owner, seq)

    def resolve(self, tenant_id: str, owner: str, seq: int, outcome: Outcome) -> None:
        """Pass on an outcome that this process has recorded."""
        self._resolve(self._waiting.get((tenant_id, owner), {}), {seq: outcome})

    async def run_loop(self) -> None:
        """Read what clients wait for, until cancelled."""
        while True:
            await self._wakeups.wait(_POLL_SECONDS)
            for (tenant_id, owner), numbers in list(self._waiting.items()):
                try:
                    async with self._store.tenant(tenant_id) as scope:
                        states = await _states(scope, owner, list(numbers))
                except StoreError as error:
                    log.warning("futures could not be read: %s", error)
                    continue
                self._resolve(numbers, states)

    def _resolve(self, numbers: Mapping[int, set[asyncio.Future[State]]], states: Mapping[int, State]) -> None:
        for seq, state in states.items():
            if not isinstance(state, Pending):
                for future in numbers.get(seq, ()):
                    if not future.done():
                        future.set_result(state)

    async def _read_one(self, tenant_id: str, owner: str, seq: int) -> State:
        async with self._store.tenant(tenant_id) as scope:
            states = await _states(scope, owner, [seq])
        if seq not in states:
            raise NotFound("The request does not exist.", code="request_not_found", param="request_id")
        return states[seq]

    def _tidy(self, tenant_id: str, owner: str, seq: int) -> None:
        numbers = self._waiting[tenant_id, owner]
        if not numbers.get(seq, True):
            del numbers[seq]
        if not numbers:
            del self._waiting[tenant_id, owner]


async def _states(scope: TenantScope, owner: str, numbers: Sequence[int]) -> dict[int, State]:
    if _SAMPLER in owner:
        samples = await scope.training_samplers.outcomes(owner, numbers)
        return {seq: Gone() if outcome is None else _state(outcome, Pending()) for seq, outcome in samples.items()}
    outcomes = await scope.training_runs.outcomes(owner, numbers)
    pending: State = Pending()
    if any(each.status is RequestStatus.WAITING for each in outcomes.values()):
        run = await scope.training_runs.get(owner)
        if run.status is RunStatus.ENDED:
            pending = _ENDED
        elif run.status is RunStatus.PAUSED:
            pending = Pending("An operator has paused this training run.")
        elif run.worker is None:
            pending = Pending("No trainer has room for this training run yet.")
    return {seq: _state(outcome, pending) for seq, outcome in outcomes.items()}


def _state(outcome: Outcome, pending: State) -> State:
    return pending if outcome.status is RequestStatus.WAITING else outcome
