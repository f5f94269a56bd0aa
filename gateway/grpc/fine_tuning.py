"""loragate.v1.FineTuningService."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.gateway.dependencies.requirements import TenantWith
from loragate.gateway.errors import ShuttingDown
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.releases import document_of, once_for
from loragate.gateway.grpc.requests import body_of, parsed
from loragate.gateway.operations import jobs as actions
from loragate.gateway.operations.job_creation import create_job
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.gateway.schemas.resources.job_query import checked_labels
from loragate.gateway.schemas.validation import validated
from loragate.v1 import fine_tuning_pb2 as pb

FINE_TUNER = TenantWith(Scope.FINETUNE)

_CREATE = "POST /v1/fine_tuning/jobs"  # as REST calls the same
_CHECKPOINTS = 10
_FOLLOW_SECONDS = 1.0
_ALL_LINEAR = "all-linear"


async def create(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """An adapter from a file of examples; once for an `idempotency-key`, whichever way it comes."""
    document = body_of(await call.request(lambda raw: parsed(pb.CreateFineTuningJobRequest, raw)))
    for method in ("supervised", "dpo"):
        asked = document.get("method", {}).get(method, {}).get("hyperparameters", {})
        if asked.get("target_modules") == [_ALL_LINEAR]:
            asked["target_modules"] = _ALL_LINEAR
    body, once = validated(JobCreate, document), once_for(call, _CREATE)
    result = await create_job(call.services, call.tenant, call.context.actor, body, once)
    yield _job(document_of(call, result))


async def list_jobs(call: Call) -> AsyncGenerator[pb.ListFineTuningJobsResponse, None]:
    """Newest first."""
    request = await call.request(lambda raw: parsed(pb.ListFineTuningJobsRequest, raw))
    labels = checked_labels(dict(request.metadata))
    page = await actions.list_jobs(call.services, call.tenant, labels, *_page(request, DEFAULT_LIMIT))
    yield pb.ListFineTuningJobsResponse(**{**page, "data": [_job(each) for each in page["data"]]})


async def get(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """One job."""
    request = await call.request(lambda raw: parsed(pb.GetFineTuningJobRequest, raw))
    yield _job(await actions.get(call.services, call.tenant, request.fine_tuning_job_id))


async def cancel(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """For good."""
    yield await _ordered(call, pb.CancelFineTuningJobRequest, "cancel")


async def pause(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Until it is resumed."""
    yield await _ordered(call, pb.PauseFineTuningJobRequest, "pause")


async def resume(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """It goes on where it was."""
    yield await _ordered(call, pb.ResumeFineTuningJobRequest, "resume")


async def list_events(call: Call) -> AsyncGenerator[pb.FineTuningEvent, None]:
    """Oldest first; whoever follows is asked for its key again and again: a job may take days."""
    request = await call.request(lambda raw: parsed(pb.ListFineTuningEventsRequest, raw))
    after = request.after if request.HasField("after") else None
    while True:
        since = await actions.events_since(call.services, call.tenant, request.fine_tuning_job_id, after)
        for event in since.events:
            yield pb.FineTuningEvent(**event)
            after = event["id"]
        if since.more:
            continue
        if since.ended or not request.follow:
            return
        await _pause_between(call)


async def list_checkpoints(call: Call) -> AsyncGenerator[pb.ListFineTuningCheckpointsResponse, None]:
    """Newest first."""
    request = await call.request(lambda raw: parsed(pb.ListFineTuningCheckpointsRequest, raw))
    page = _page(request, _CHECKPOINTS)
    found = await actions.list_checkpoints(call.services, call.tenant.tenant_id, request.fine_tuning_job_id, *page)
    yield pb.ListFineTuningCheckpointsResponse(**found)


async def _ordered(call: Call, kind: type[Any], act: actions.Act) -> pb.FineTuningJob:
    request = await call.request(lambda raw: parsed(kind, raw))
    job_id, by = request.fine_tuning_job_id, call.context.actor
    return _job(await actions.order(call.services, call.tenant.tenant_id, by, job_id, act))


async def _pause_between(call: Call) -> None:
    """Raises ShuttingDown, Unauthenticated, Forbidden."""
    await asyncio.sleep(_FOLLOW_SECONDS)
    if call.services.lifecycle.draining:
        raise ShuttingDown
    await FINE_TUNER.admit(call.services, call.stream.metadata.get("authorization", ""), call.context)


def _page(request: Any, limit: int) -> tuple[str | None, int]:
    after = request.after if request.HasField("after") else None
    return after, request.limit if request.HasField("limit") else limit


def _job(document: dict[str, Any]) -> pb.FineTuningJob:
    fields = {name: value for name, value in document.items() if name != "integrations"}
    type_ = document["method"]["type"]
    tuned = _known(document["method"][type_]["hyperparameters"])
    return pb.FineTuningJob(
        **{
            **fields,
            "hyperparameters": _known(document["hyperparameters"]),
            "metadata": document["metadata"] or {},
            "method": {"type": type_, type_: {"hyperparameters": tuned}},
        }
    )


def _known(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    """What is still open is absent."""
    known = {name: value for name, value in hyperparameters.items() if value not in ("auto", None)}
    if isinstance(targets := known.get("target_modules"), str):
        known["target_modules"] = [targets]
    return known
