"""What a tenant does with its fine-tuning jobs, over REST or gRPC; each returns what the caller is told."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import Response

from loragate.adapter_store.actor import Actor
from loragate.adapter_store.file import Purpose
from loragate.adapter_store.job import JobRequest, JobStart
from loragate.adapter_store.principal import TenantPrincipal
from loragate.adapter_store.scopes import TenantScope
from loragate.gateway.file_actions import purposes_of
from loragate.gateway.generation.routing import route_of
from loragate.gateway.http.errors import InvalidRequest
from loragate.gateway.http.idempotency import Once
from loragate.gateway.job_bounds import checked_hyperparameters, open_rank
from loragate.gateway.schemas.fine_tuning import JobCreate
from loragate.gateway.services import Services
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.wire.fine_tuning import checkpoint_object, event_id, event_object, job_object
from loragate.gateway.wire.lists import list_object

Document = dict[str, Any]
Act = Literal["cancel", "pause", "resume"]

_SEEDS = 1 << 31


async def create(use: Services, caller: TenantPrincipal, by: Actor, body: JobCreate, once: Once) -> Response:
    """Its files are validated next. Raises ApiError and StoreError for whatever can be told before that."""
    base = use.link.base
    hyperparameters = checked_hyperparameters(body, base.manifest, caller.limits)
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.reply is not None:
            return attempt.reply
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            await _check_file(scope, caller, body.training_file, "training_file")
            if body.validation_file is not None:
                await _check_file(scope, caller, body.validation_file, "validation_file")
            start = await _start(scope, base, body.model)
            if start is None and "lora_rank" not in hyperparameters and (rank := open_rank(caller.limits)):
                hyperparameters["lora_rank"] = rank
            job = await scope.jobs.create(_request(body, hyperparameters, start))
            return await attempt.keep(scope.replies, job_object(job, caller.tenant_id), 200)


async def list_jobs(
    use: Services, caller: TenantPrincipal, labels: Mapping[str, str] | None, after: str | None, limit: int
) -> Document:
    """Newest first, those with these labels, or (None) without any."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.jobs.list(labels, after=after, limit=limit)
    return list_object([job_object(job, caller.tenant_id) for job in page], has_more=page.has_more)


async def get(use: Services, caller: TenantPrincipal, job_id: str) -> Document:
    """One job."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return job_object(await scope.jobs.get(job_id), caller.tenant_id)


async def order(use: Services, tenant_id: str, by: Actor, job_id: str, act: Act) -> Document:
    """At once, or as soon as its worker hears of it. Raises Conflict where it is too late."""
    async with use.store.tenant(tenant_id, write=True, by=by) as scope:
        match act:
            case "cancel":
                job = await scope.jobs.cancel(job_id)
            case "pause":
                job = await scope.jobs.pause(job_id)
            case "resume":
                job = await scope.jobs.resume(job_id)
    return job_object(job, tenant_id)


async def list_events(use: Services, caller: TenantPrincipal, job_id: str, after: str | None, limit: int) -> Document:
    """Newest first."""
    number = None if after is None else event_number(job_id, after)
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.jobs.events(job_id, after=number, limit=limit)
    return list_object([event_object(event, job_id) for event in page], has_more=page.has_more)


@dataclass(frozen=True)
class Since:
    """`events`, oldest first; `more` can be read at once, unless the job has `ended` no others come."""

    events: list[Document]
    more: bool
    ended: bool


async def events_since(use: Services, caller: TenantPrincipal, job_id: str, after: str | None) -> Since:
    """What happened behind the event `after`, for whoever follows the job."""
    number = 0 if after is None else event_number(job_id, after)
    async with use.store.tenant(caller.tenant_id) as scope:
        job = await scope.jobs.get(job_id)
        page = await scope.jobs.events_since(job_id, number)
    return Since([event_object(event, job_id) for event in page], page.has_more, job.status.ended)


async def list_checkpoints(
    use: Services, caller: TenantPrincipal, job_id: str, after: str | None, limit: int
) -> Document:
    """Newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        job = await scope.jobs.get(job_id)
        page = await scope.jobs.checkpoints(job_id, after=after, limit=limit)
    return list_object([checkpoint_object(each, job) for each in page], has_more=page.has_more)


def event_number(job_id: str, after: str) -> int:
    """Which of the job's events has this id. Raises InvalidRequest."""
    number = after.rpartition("-")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 10) or event_id(job_id, int(number)) != after:
        words = "`after` is not the id of an item of this list."
        raise InvalidRequest(words, param="after", code="invalid_value")
    return int(number)


async def _check_file(scope: TenantScope, caller: TenantPrincipal, file_id: str, param: str) -> None:
    file = await scope.files.get(file_id, purposes_of(caller), param=param)
    if file.purpose is not Purpose.FINE_TUNE:
        words = f"Invalid '{param}': its purpose is '{file.purpose}'; upload it with the purpose 'fine-tune'."
        raise InvalidRequest(words, param=param, code=f"invalid_{param}")


async def _start(scope: TenantScope, base: BaseModel, model: str) -> JobStart | None:
    """None where the job begins with the base model. Raises NotFound, Forbidden, Conflict."""
    if model == base.id:
        return None
    route = await route_of(scope, model)
    if len(route.arms) > 1:
        words = "Invalid 'model': it stands for several versions; name the one to go on from."
        raise InvalidRequest(words, param="model", code="ambiguous_model")
    adapter = route.pick()
    return JobStart(adapter.adapter_id, adapter.name, adapter.version, adapter.digest)


def _request(body: JobCreate, hyperparameters: Document, start: JobStart | None) -> JobRequest:
    return JobRequest(
        method=body.kind,
        model=body.model,
        training_file=body.training_file,
        validation_file=body.validation_file,
        hyperparameters=hyperparameters,
        suffix=body.suffix,
        seed=secrets.randbelow(_SEEDS) if body.seed is None else body.seed,
        metadata=body.metadata or {},
        start=start,
    )
