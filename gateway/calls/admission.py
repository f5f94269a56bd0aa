"""Admission of inference requests, and the accounting at their end.

    async with use.admission.admit(caller, generation, endpoint="chat", request_id=…) as call:
        ...

The block begins once the caller's limits have room and the engine's queue is short enough. However it ends (done,
client gone, error, cancelled), the limits are settled to what was computed and the ledger gets one record of that and
of what was delivered: at once, or when the engine has ended what its client left behind. Neither awaits anything, so no
cancellation can come between the two.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from starlette.requests import ClientDisconnect

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.usage.record import Outcome, UsageRecord, new_usage_id
from loragate.adapter_store.usage.service_quality import Reason
from loragate.gateway.calls.call import Admitted, PoolingCall, TextCall
from loragate.gateway.calls.inference_request import (
    Endpoint,
    InferenceRequest,
    PoolingEndpoint,
    pooling_inference,
    text_inference,
)
from loragate.gateway.calls.rejections import Rejections
from loragate.gateway.calls.request_tokens import ComputedTokens, DeliveredTokens
from loragate.gateway.calls.shedding import Shedding
from loragate.gateway.calls.span import ModelCall
from loragate.gateway.engine.link import EngineLink
from loragate.gateway.errors import OVERLOADED, ApiError, Unavailable
from loragate.gateway.generation.request import GenerationRequest, PoolingRequest
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.lifecycle import Lifecycle
from loragate.gateway.limits.errors import RateLimited
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.metering.live_counters import Meter
from loragate.gateway.tracing.current import CURRENT, step

TextAdmission = AbstractAsyncContextManager[TextCall]
PoolingAdmission = AbstractAsyncContextManager[PoolingCall]


class CallAdmission(ABC):
    """Admits requests for text and for vectors, by what `_admitted` of a subclass demands of them."""

    def __init__(self, generation: GenerationService, link: EngineLink, lifecycle: Lifecycle) -> None:
        self._generation = generation
        self._link = link
        self._lifecycle = lifecycle

    @asynccontextmanager
    async def admit(
        self, caller: TenantPrincipal, request: GenerationRequest, *, endpoint: Endpoint, request_id: str
    ) -> AsyncIterator[TextCall]:
        """Admit a request for text. Raise RateLimited and Unavailable."""
        async with self._admitted(text_inference(caller, endpoint, request_id, request)) as admitted:
            yield TextCall(self._generation, request, admitted)

    @asynccontextmanager
    async def admit_pooling(
        self, caller: TenantPrincipal, request: PoolingRequest, *, endpoint: PoolingEndpoint, request_id: str
    ) -> AsyncIterator[PoolingCall]:
        """Admit a request for vectors. Raise RateLimited and Unavailable."""
        async with self._admitted(pooling_inference(caller, endpoint, request_id, request)) as admitted:
            yield PoolingCall(self._generation, request, admitted)

    @abstractmethod
    def _admitted(self, request: InferenceRequest) -> AbstractAsyncContextManager[Admitted]: ...


class MeterSource(Protocol):
    """Opens the meters of requests."""

    def open(self, record: UsageRecord, lease: LeaseRecord | None = None) -> Meter:
        """Return a meter of a request that starts now."""
        ...


class Admission(CallAdmission):
    """Admits inference requests. One per process."""

    def __init__(
        self,
        *,
        shedding: Shedding,
        rejections: Rejections,
        limiter: Limiter,
        ledger: MeterSource,
        generation: GenerationService,
        lifecycle: Lifecycle,
        link: EngineLink,
    ) -> None:
        super().__init__(generation, link, lifecycle)
        self.limiter = limiter
        self.rejections = rejections
        self._shedding = shedding
        self._ledger = ledger

    def metered_by(self, meters: MeterSource) -> "Admission":
        """Return an admission by the same limits, whose usage is recorded elsewhere."""
        other = copy(self)
        other._ledger = meters
        return other

    @asynccontextmanager
    async def _admitted(self, request: InferenceRequest) -> AsyncIterator[Admitted]:
        with step("admission"):
            lease = await self._lease(request)
        base_model = self._link.base.id
        meter = self._ledger.open(opened_record(request, base_model), lease.record)
        async with accounted(request, base_model, lease, meter, self._lifecycle) as admitted:
            try:
                yield admitted
            except ApiError as error:
                if _is_shed(error, admitted.delivered):
                    self._shedding.count_engine_rejection(request.caller, error)
                    self.rejections.record(request.caller.tenant_id, Reason.OVERLOAD)
                raise

    async def _lease(self, request: InferenceRequest) -> Lease:
        caller, charged = request.caller, request.lease
        try:
            self._shedding.check(caller)
        except Unavailable:
            self.rejections.record(caller.tenant_id, Reason.OVERLOAD)
            if charged is not None:
                charged.settle(0)
            raise
        try:
            if charged is not None:
                return self.limiter.extend(charged, caller, request.target.adapter, request.reserve)
            return await self.limiter.admit(caller, request.target.adapter, request.reserve)
        except RateLimited:
            self.rejections.record(caller.tenant_id, Reason.LIMIT)
            raise


@asynccontextmanager
async def accounted(
    request: InferenceRequest, base_model: str, lease: Lease, meter: Meter, lifecycle: Lifecycle
) -> AsyncIterator[Admitted]:
    """Yield what an admitted request has; at its end, settle its lease and close its meter."""
    computed = ComputedTokens()
    delivered, outcome = DeliveredTokens(request, meter, computed), Outcome.FAILED
    spans = CURRENT.get()
    traced = None if spans is None else ModelCall(spans, request, base_model)
    try:
        yield Admitted({**request.target.headers, **lease.headers}, lease, computed, delivered)
        outcome = Outcome.COMPLETED
    except ClientDisconnect:
        outcome = Outcome.DISCONNECTED
        raise
    except (asyncio.CancelledError, GeneratorExit):
        outcome = Outcome.CANCELLED if lifecycle.expired else Outcome.DISCONNECTED
        raise
    except ApiError as error:
        if _is_shed(error, delivered):
            outcome = Outcome.SHED
        raise
    finally:
        meter.end(outcome)
        computed.when_ended(partial(_settle, lease, meter, computed))
        if traced is not None:
            traced.end(outcome, delivered, computed.engine_id)


def _is_shed(error: ApiError, delivered: DeliveredTokens) -> bool:
    return error.code == OVERLOADED and not delivered.tokens


def _settle(lease: Lease, meter: Meter, computed: ComputedTokens) -> None:
    lease.settle(computed.tokens)
    meter.record_computed(computed.computed_prompt_tokens, computed.generated_tokens)
    meter.close(computed.engine_id)


def opened_record(request: InferenceRequest, base_model: str) -> UsageRecord:
    """Return the record of a request that starts now."""
    adapter = request.target.adapter
    return UsageRecord(
        id=new_usage_id(),
        request_id=request.request_id,
        tenant_id=request.caller.tenant_id,
        key_id=request.caller.key_id,
        endpoint=request.endpoint,
        base_model=base_model,
        started_at=datetime.now(UTC),
        adapter=adapter.name if adapter else None,
        adapter_version=adapter.version if adapter else None,
        adapter_alias=adapter.alias if adapter else None,
        adapter_digest=adapter.digest if adapter else None,
    )
