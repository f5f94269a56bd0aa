"""A background response that this process holds: it is generated, its events are stored as they come, and its end is
committed with its usage."""

import asyncio
import logging
import secrets
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.errors import Conflict, NotFound, StoreError, Unavailable
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.responses.queue import ResponseClaim
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.calls.deferred_usage import DeferredUsage
from loragate.gateway.errors import ApiError, Forbidden
from loragate.gateway.metering.ledger import Prices
from loragate.gateway.objects.inference.response_events import ResponseEvents
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.responses import ResponseObject
from loragate.gateway.operations.responses import PreparedResponse, add_to_conversation, prepare_again
from loragate.gateway.resilience.timeouts import wait_for_event
from loragate.gateway.schemas.inference.response_chat import renamed_fields
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

_RENEW_SECONDS = 3.0  # of the lease's thirty
_FLUSH_SECONDS = 0.1
_COMMIT_SECONDS = 1.0  # between attempts while the database is unavailable
_TEMPORARY = (429, 503)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 15.0
_RETRIED_SECONDS = 600.0  # for which a response that is rejected because of load is tried again
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class _Cancelled(Exception):
    """The tenant has cancelled the response."""


class HeldResponse:
    """Raises LeaseLost when another process may hold the response, or it was deleted."""

    def __init__(self, use: Services, claim: ResponseClaim, prices: Prices) -> None:
        self.claim = claim
        self._use = use
        self._prices = prices
        self._here = claim.id, claim.worker
        self._poked = asyncio.Event()
        self._usage = DeferredUsage()
        self._buffer: list[ResponseEvent] = []
        self._events: ResponseEvents | None = None

    def poke(self) -> None:
        """Look at the response now: it may have been cancelled or deleted."""
        self._poked.set()

    async def run(self) -> None:
        """Generate the response and record its end. Raise StoreError."""
        waited, wait = 0.0, _FIRST_WAIT
        while True:
            try:
                prepared = await self._prepared()
                document = await self._generated(prepared)
            except _Cancelled:
                await self._finish(None, self._partial())
                return
            except (ApiError, StoreError) as error:
                if isinstance(error, LeaseLost):
                    raise
                if error.status not in _TEMPORARY or waited > _RETRIED_SECONDS:
                    await self.fail(error)
                    return
                await self._pause(wait)
                waited, wait = waited + wait, min(_LONGEST_WAIT, 2 * wait)
            else:
                await self._finish(prepared, document)
                return

    async def fail(self, error: ApiError | StoreError) -> None:
        """Record that the response failed. Raise StoreError."""
        if self._events is not None and isinstance(error, ApiError):
            event = self._events.failure(error)
            self._buffer.append(event)
            await self._finish(None, event["response"])
            return
        async with self._scope() as scope:
            stored = await scope.responses.get(self.claim.id)
        failure = {"code": "rate_limit_exceeded" if error.status == 429 else "server_error", "message": error.message}
        await self._finish(None, {**stored.document, "status": "failed", "error": failure})

    async def release(self) -> None:
        """Give the response up, so that another process may claim it at once. Without the database its lease
        expires."""
        with suppress(StoreError):
            async with self._scope(write=True) as scope:
                await scope.response_lease.release(*self._here)

    async def _prepared(self) -> PreparedResponse:
        caller = await self._caller()
        async with self._scope() as scope:
            stored = await scope.responses.get(self.claim.id)
            request = await scope.responses.request_of(self.claim.id)
        return await prepare_again(self._use, caller, request.request, request.items, self.claim.id, stored.created_at)

    async def _caller(self) -> TenantPrincipal:
        found = await self._use.store.principal_of(self.claim.key_id)
        if found is None or not found.allows(Scope.INFERENCE):
            raise Forbidden("The key that created the response is no longer valid.")
        return found

    async def _generated(self, prepared: PreparedResponse) -> ResponseObject:
        """Return the complete response. Raise _Cancelled."""
        async with self._scope(write=True) as scope:
            state = await scope.response_lease.start(*self._here, prepared.head.document("in_progress"))
        if state.status.ended:
            raise _Cancelled
        self._buffer.clear()
        self._events = ResponseEvents(prepared.head, state.next_event)
        generation = asyncio.create_task(self._generate(prepared, self._events), name="response-generation")
        try:
            await self._watch(generation)
            return generation.result()
        finally:
            generation.cancel()
            await asyncio.gather(generation, return_exceptions=True)

    async def _generate(self, prepared: PreparedResponse, events: ResponseEvents) -> ResponseObject:
        request_id = f"req_{secrets.token_hex(16)}"
        admission = self._use.admission.metered_by(self._usage)
        last: ResponseEvent | None = None
        with renamed_fields():
            async with admission.admit(
                prepared.caller, prepared.head.request, endpoint="responses", request_id=request_id
            ) as call:
                async for event in events.stream(call.stream()):
                    last = event
                    if self.claim.streamed:
                        self._buffer.append(event)
        assert last is not None
        assert last["type"] in _ENDS
        return last["response"]

    async def _watch(self, generation: "asyncio.Task[ResponseObject]") -> None:
        """Store events and renew the lease until the response is generated. Raise _Cancelled and LeaseLost."""
        clock = asyncio.get_running_loop().time
        renewed = clock()
        while not generation.done():
            await asyncio.wait({generation}, timeout=_FLUSH_SECONDS)
            if generation.done():
                return
            due = self._poked.is_set() or clock() - renewed > _RENEW_SECONDS
            self._poked.clear()
            try:
                if due:
                    await self._renew()
                    renewed = clock()
                if self._buffer:
                    await self._flush()
            except LeaseLost:
                raise
            except StoreError as error:
                log.warning("the lease of %s was not renewed: %s", self.claim.id, error)

    async def _renew(self) -> None:
        async with self._scope(write=True) as scope:
            state = await scope.response_lease.renew(*self._here)
        if state.status.ended:
            raise _Cancelled

    async def _flush(self) -> None:
        some = list(self._buffer)
        async with self._scope(write=True) as scope:
            state = await scope.response_lease.add_events(*self._here, some)
        del self._buffer[: len(some)]
        if state.status.ended:
            raise _Cancelled

    async def _pause(self, seconds: float) -> None:
        """Wait while holding the response. Raise _Cancelled and LeaseLost."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while clock() < until:
            await wait_for_event(self._poked, min(_RENEW_SECONDS, max(0.0, until - clock())))
            self._poked.clear()
            await self._renew()

    def _partial(self) -> ResponseObject | None:
        return None if self._events is None else self._events.cancelled()

    async def _finish(self, prepared: PreparedResponse | None, document: Any) -> None:
        """Record the end, with the usage, the last events and the items of the conversation. Raise StoreError."""
        usage = await self._used()
        while True:
            try:
                await self._commit(prepared, document, usage)
            except LeaseLost:
                raise
            except Unavailable as error:
                log.warning("the end of %s was not committed: %s", self.claim.id, error)
                await asyncio.sleep(_COMMIT_SECONDS)
            except Conflict as error:  # the items exceed a quota
                failure = {"code": "server_error", "message": error.message}
                prepared, document = None, {**document, "status": "failed", "error": failure}
                self._buffer.clear()
            else:
                break
        if usage is not None:
            self._use.usage_metrics.ended(usage)

    async def _commit(self, prepared: PreparedResponse | None, document: Any, usage: UsageRecord | None) -> None:
        async with self._scope(write=True) as scope:
            if document is None:
                document = (await scope.responses.get(self.claim.id)).document
            status = await scope.response_lease.finish(*self._here, document, usage, self._buffer)
            if prepared is not None and status.value == document["status"]:
                with suppress(NotFound):  # the conversation was deleted meanwhile
                    await add_to_conversation(self._use, scope, prepared, document)

    async def record_lost(self) -> None:
        """Record the usage of a response that was deleted while it ran: no other process runs it again. Raise
        StoreError."""
        usage = await self._used()
        if usage is None:
            return
        async with self._scope() as scope:
            if await scope.responses.status(self.claim.id) is not None:
                return
        async with self._use.store.admin(write=True) as admin:
            await admin.settlement.settle([usage])
        self._use.usage_metrics.ended(usage)

    async def _used(self) -> UsageRecord | None:
        usage = await self._usage.usage()
        return None if usage is None else self._prices.priced(usage)

    def _scope(self, *, write: bool = False) -> AbstractAsyncContextManager[TenantScope]:
        """Open a transaction on the tenant's data, on behalf of the key that created the response."""
        return self._use.store.tenant(self.claim.tenant_id, write=write, by=Actor(f"api_key:{self.claim.key_id}"))
