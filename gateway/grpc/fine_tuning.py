"""loragate.v1.FineTuningService: jobs, their events and checkpoints."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from loragate.adapter_store.auth.principal import Scope
from loragate.adapter_store.database.page import DEFAULT_LIMIT
from loragate.finetune.data.formats import Method
from loragate.gateway.dependencies.requirements import TenantWith
from loragate.gateway.errors import ShuttingDown, TooManyRequests
from loragate.gateway.grpc.call import Call
from loragate.gateway.grpc.requests import body_from, parse_message
from loragate.gateway.operations import jobs as actions
from loragate.gateway.operations.job_creation import create_job
from loragate.gateway.resilience.fair_places import NoPlace
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.gateway.schemas.resources.job_query import checked_labels
from loragate.gateway.schemas.validation import validated
from loragate.v1 import fine_tuning_pb2 as pb

FINE_TUNER = TenantWith(Scope.FINETUNE)

_CREATE = "POST /v1/fine_tuning/jobs"  # the equivalent route of the REST API
_CHECKPOINTS = 10
_FOLLOW_SECONDS = 1.0
_ALL_LINEAR = "all-linear"


async def create(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Create a job, once per `idempotency-key`, which REST and gRPC share."""
    document = body_from(await call.request(lambda raw: parse_message(pb.CreateFineTuningJobRequest, raw)))
    for method in Method:
        asked = document.get("method", {}).get(method, {}).get("hyperparameters", {})
        if asked.get("target_modules") == [_ALL_LINEAR]:
            asked["target_modules"] = _ALL_LINEAR
    body, once = validated(JobCreate, document), call.once(_CREATE)
    result = await create_job(call.services, call.tenant, call.change(), body, once)
    job = call.document(result)
    yield _job(job)


async def list_jobs(call: Call) -> AsyncGenerator[pb.ListFineTuningJobsResponse, None]:
    """List jobs, newest first."""
    request = await call.request(lambda raw: parse_message(pb.ListFineTuningJobsRequest, raw))
    labels = checked_labels(dict(request.metadata))
    page: Mapping[str, Any] = await actions.list_jobs(
        call.services, call.tenant, labels, *_page(request, DEFAULT_LIMIT)
    )
    yield pb.ListFineTuningJobsResponse(**{**page, "data": [_job(each) for each in page["data"]]})


async def get(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Return one job."""
    request = await call.request(lambda raw: parse_message(pb.GetFineTuningJobRequest, raw))
    yield _job(await actions.get(call.services, call.tenant, request.fine_tuning_job_id))


async def cancel(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Cancel a job permanently."""
    yield await _order(call, pb.CancelFineTuningJobRequest, "cancel")


async def pause(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Pause a job until it is resumed."""
    yield await _order(call, pb.PauseFineTuningJobRequest, "pause")


async def resume(call: Call) -> AsyncGenerator[pb.FineTuningJob, None]:
    """Resume a job where it was paused."""
    yield await _order(call, pb.ResumeFineTuningJobRequest, "resume")


async def list_events(call: Call) -> AsyncGenerator[pb.FineTuningEvent, None]:
    """Yield events, oldest first. While following, check the key periodically, because a job may take days."""
    request = await call.request(lambda raw: parse_message(pb.ListFineTuningEventsRequest, raw))
    after = request.after if request.HasField("after") else None
    with _follower(call) if request.follow else nullcontext():
        while True:
            since = await actions.events_since(call.services, call.tenant, request.fine_tuning_job_id, after)
            for event in since.events:
                yield pb.FineTuningEvent(**event)
                after = event["id"]
            if since.more:
                continue
            if since.ended or not request.follow:
                return
            await _wait_for_next_poll(call)


@contextmanager
def _follower(call: Call) -> Iterator[None]:
    """Count a call that follows a job, which may be paused for ever. Raise TooManyRequests."""
    try:
        with call.services.event_followers.hold(call.tenant.tenant_id):
            yield
    except NoPlace:
        message = "This tenant follows as many jobs as it may at a time; end another call first."
        raise TooManyRequests(message, code="too_many_streams") from None


async def list_checkpoints(call: Call) -> AsyncGenerator[pb.ListFineTuningCheckpointsResponse, None]:
    """List checkpoints, newest first."""
    request = await call.request(lambda raw: parse_message(pb.ListFineTuningCheckpointsRequest, raw))
    page = _page(request, _CHECKPOINTS)
    found = await actions.list_checkpoints(call.services, call.tenant.tenant_id, request.fine_tuning_job_id, *page)
    yield pb.ListFineTuningCheckpointsResponse(**found)


async def _order(call: Call, kind: type[Any], act: actions.Act) -> pb.FineTuningJob:
    request = await call.request(lambda raw: parse_message(kind, raw))
    job_id, by = request.fine_tuning_job_id, call.change()
    return _job(await actions.order(call.services, call.tenant.tenant_id, by, job_id, act))


async def _wait_for_next_poll(call: Call) -> None:
    """Wait before the next poll. Raise ShuttingDown, Unauthenticated, Forbidden."""
    await asyncio.sleep(_FOLLOW_SECONDS)
    if call.services.lifecycle.draining:
        raise ShuttingDown
    await FINE_TUNER.admit(call.services, call.stream.metadata.get("authorization", ""), call.context)


def _page(request: Any, limit: int) -> tuple[str | None, int]:
    after = request.after if request.HasField("after") else None
    return after, request.limit if request.HasField("limit") else limit


def _job(document: Mapping[str, Any]) -> pb.FineTuningJob:
    fields = {name: value for name, value in document.items() if name != "integrations"}
    type_ = document["method"]["type"]
    tuned = _known(document["method"][type_]["hyperparameters"])
    return pb.FineTuningJob(
        **{
            **fields,
            "hyperparameters": _known(document["hyperparameters"]),
            "metadata": document["metadata"] or {},
            "evaluation": _evaluation(document["evaluation"]),
            "method": {"type": type_, type_: {"hyperparameters": tuned}},
        }
    )


def _evaluation(document: Mapping[str, Any] | None) -> pb.FineTuningEvaluation | None:
    if document is None:
        return None
    rows = [pb.FineTuningConfusionRow(examples=row) for row in document["confusion_matrix"] or ()]
    return pb.FineTuningEvaluation(**{**document, "labels": document["labels"] or (), "confusion_matrix": rows})


def _known(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters without those that are not decided yet."""
    known = {name: value for name, value in hyperparameters.items() if value not in ("auto", None)}
    if isinstance(targets := known.get("target_modules"), str):
        known["target_modules"] = [targets]
    return known
