"""The way in, and every way out.

    async with admit(services, caller, generation, endpoint="chat", request_id=…) as call:
        ...

goes on once the engine can come to it in time and the caller's limits have room. However the block ends (done,
client gone, error, cancelled), the limits are settled to what the client was told and the ledger gets one record of
it. Neither waits for anything, so that no cancellation can come between.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

from starlette.requests import ClientDisconnect

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.usage.record import Outcome, UsageRecord, new_usage_id
from loragate.adapter_store.usage.service_quality import Reason
from loragate.gateway.calls.call import Admitted, EmbeddingCall, TextCall
from loragate.gateway.calls.delivered_tokens import Told
from loragate.gateway.calls.inference_request import Ask, Endpoint, ask_for_embeddings, ask_for_text
from loragate.gateway.calls.span import model_call
from loragate.gateway.errors import OVERLOADED, ApiError, Unavailable
from loragate.gateway.generation.request import GenerationRequest, PoolingRequest
from loragate.gateway.limits.lease import Lease
from loragate.gateway.limits.refusal import RateLimited
from loragate.gateway.services import Services
from loragate.gateway.tracing.current import step

Admission = AbstractAsyncContextManager[TextCall]
EmbeddingAdmission = AbstractAsyncContextManager[EmbeddingCall]


@asynccontextmanager
async def admit(
    services: Services, caller: TenantPrincipal, request: GenerationRequest, *, endpoint: Endpoint, request_id: str
) -> AsyncIterator[TextCall]:
    """One request for text. Raises RateLimited and Unavailable."""
    async with _admitted(services, ask_for_text(caller, endpoint, request_id, request)) as admitted:
        yield TextCall(services.generation, request, admitted)


@asynccontextmanager
async def admit_embeddings(
    services: Services, caller: TenantPrincipal, request: PoolingRequest, *, request_id: str
) -> AsyncIterator[EmbeddingCall]:
    """One request for embeddings. Raises RateLimited and Unavailable."""
    async with _admitted(services, ask_for_embeddings(caller, request_id, request)) as admitted:
        yield EmbeddingCall(services.generation, request, admitted)


@asynccontextmanager
async def _admitted(services: Services, ask: Ask) -> AsyncIterator[Admitted]:
    with step("admission"):
        lease = await _let_in(services, ask)
    meter = services.ledger.open(_opened(ask, services.link.base.id))
    told, outcome = Told(ask, meter), Outcome.FAILED
    traced = model_call(ask, services.link.base.id)
    try:
        yield Admitted({**ask.target.headers, **lease.headers}, lease, told)
        outcome = Outcome.COMPLETED
    except ClientDisconnect:
        outcome = Outcome.DISCONNECTED
        raise
    except (asyncio.CancelledError, GeneratorExit):
        outcome = Outcome.CANCELLED if services.lifecycle.expired else Outcome.DISCONNECTED
        raise
    except ApiError as error:
        if error.code == OVERLOADED and not told.tokens:
            outcome = Outcome.SHED
            services.shedding.refused(ask.caller, error)
            services.turned_away.note(ask.caller.tenant_id, Reason.OVERLOAD)
        raise
    finally:
        lease.settle(told.tokens)
        meter.close(outcome)
        if traced is not None:
            traced.end(outcome, told)


async def _let_in(services: Services, ask: Ask) -> Lease:
    try:
        services.shedding.check(ask.caller)
    except Unavailable:
        services.turned_away.note(ask.caller.tenant_id, Reason.OVERLOAD)
        raise
    try:
        return await services.limiter.admit(ask.caller, ask.target.adapter, ask.reserve)
    except RateLimited:
        services.turned_away.note(ask.caller.tenant_id, Reason.LIMIT)
        raise


def _opened(ask: Ask, base_model: str) -> UsageRecord:
    adapter = ask.target.adapter
    return UsageRecord(
        id=new_usage_id(),
        request_id=ask.request_id,
        tenant_id=ask.caller.tenant_id,
        key_id=ask.caller.key_id,
        endpoint=ask.endpoint,
        base_model=base_model,
        started_at=datetime.now(UTC),
        adapter=adapter.name if adapter else None,
        adapter_version=adapter.version if adapter else None,
        adapter_alias=adapter.alias if adapter else None,
        adapter_digest=adapter.digest if adapter else None,
    )
