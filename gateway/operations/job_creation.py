"""Creation of fine-tuning jobs, for REST and gRPC."""

import secrets
from typing import Any

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import JobRequest, JobStart
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.quotas import check_rank
from loragate.adapter_store.scopes import TenantScope
from loragate.finetune.data.formats import Method
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.generation.resolver import route_of
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.fine_tuning import FineTuningJob, job_object
from loragate.gateway.operations.files import purposes_of
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.gateway.services import Services
from loragate.gateway.text.base_model import BaseModel
from loragate.peft_format.classification import Task
from loragate.peft_format.kinds import AdapterKind
from loragate.v1 import engine_pb2 as pb

_SEEDS = 1 << 31


async def create_job(
    use: Services, caller: TenantPrincipal, by: Actor, body: JobCreate, once: Once
) -> Result[FineTuningJob]:
    """Create a job. Its files are validated later; raises ApiError and StoreError for what can be checked now."""
    base = use.link.base
    if body.kind == Method.CLASSIFY:
        _check_classifiable(body, base)
    hyperparameters = checked_hyperparameters(body, base.manifest, caller.limits)
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            await scope.signatures.require_trusted_training()
            await _check_file(scope, caller, body.training_file, "training_file", may_grow=body.asked.streaming)
            if body.validation_file is not None:
                await _check_file(scope, caller, body.validation_file, "validation_file")
            start = await _start(scope, base, body.model)
            if start is None and "lora_rank" not in hyperparameters and (rank := reduced_rank(caller.limits)):
                hyperparameters["lora_rank"] = rank
            job = await scope.jobs.create(_request(body, hyperparameters, start))
            return await attempt.keep(scope.idempotency, job_object(job, caller.tenant_id), 200)


def _check_classifiable(body: JobCreate, base: BaseModel) -> None:
    """Raise InvalidRequest if no head for labels can be trained on the base model, or not on this adapter."""
    heads = {head.task for head in base.manifest.classifier_heads}
    if Task.SEQUENCE not in heads or AdapterKind.CLASSIFIER not in base.manifest.adapter_kinds:
        words = (
            f"Invalid 'method.type': this server serves no head for labels of texts ({Task.SEQUENCE}) on its base "
            f"model, '{base.id}'."
        )
        raise InvalidRequest(words, param="method.type", code="invalid_value")
    if body.model != base.id:
        words = f"Invalid 'model': a classifier starts from the base model, '{base.id}', not from an adapter."
        raise InvalidRequest(words, param="model", code="invalid_value")


async def _check_file(
    scope: TenantScope, caller: TenantPrincipal, file_id: str, param: str, *, may_grow: bool = False
) -> None:
    file = await scope.files.get(file_id, purposes_of(caller), param=param)
    if file.purpose is not Purpose.FINE_TUNE:
        words = f"Invalid '{param}': its purpose is '{file.purpose}'; upload it with the purpose 'fine-tune'."
        raise InvalidRequest(words, param=param, code=f"invalid_{param}")
    if file.is_open and not may_grow:
        hint = ", or have the job follow it with the hyperparameter `streaming`" if param == "training_file" else ""
        words = f"Invalid '{param}': the file is still open. Close it (POST /v1/files/{file.id}/close) first{hint}."
        raise InvalidRequest(words, param=param, code="file_open")


async def _start(scope: TenantScope, base: BaseModel, model: str) -> JobStart | None:
    """Return the version from which the job starts; None for the base model. Raise NotFound, Forbidden, Conflict."""
    if model == base.id:
        return None
    route = await route_of(scope, model)
    if len(route.targets) > 1:
        words = "Invalid 'model': it stands for several versions; name the version to start from."
        raise InvalidRequest(words, param="model", code="ambiguous_model")
    adapter = route.pick()
    return JobStart(adapter.adapter_id, adapter.name, adapter.version, adapter.digest)


def _request(body: JobCreate, hyperparameters: dict[str, Any], start: JobStart | None) -> JobRequest:
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


_DEFAULT_RANK = 16


def checked_hyperparameters(body: JobCreate, manifest: pb.Manifest, limits: TenantLimits) -> dict[str, Any]:
    """Return the requested hyperparameters. Raise InvalidRequest, and Conflict for a rank above the tenant's limit."""
    asked = body.asked
    if asked.lora_rank != "auto":
        if asked.lora_rank > manifest.max_lora_rank:
            raise _invalid(body, "lora_rank", f"this server serves ranks up to {manifest.max_lora_rank}")
        check_rank(limits, asked.lora_rank)
    if asked.target_modules != "all-linear":
        for position, target in enumerate(asked.target_modules):
            if not any(_matches(module.name, target) for module in manifest.modules if module.servable):
                raise _invalid(body, f"target_modules.{position}", "the base model has no such module to adapt")
            if _matches(manifest.output_head, target):
                raise _invalid(
                    body, f"target_modules.{position}", "the base model's head cannot be adapted in training"
                )
    if asked.invocation is not None:
        _check_invocation(body, asked.invocation, manifest)
    return asked.model_dump(mode="json", exclude_unset=True)


def _check_invocation(body: JobCreate, invocation: tuple[int, ...], manifest: pb.Manifest) -> None:
    """Raise InvalidRequest if no adapter that these tokens activate can be trained, or served."""
    field = "alora_invocation_tokens"
    if AdapterKind.ACTIVATED not in manifest.adapter_kinds:
        raise _invalid(body, field, "this server does not serve activated LoRA")
    for position, token in enumerate(invocation):
        if token >= manifest.vocab_size:
            words = f"the base model has {manifest.vocab_size} tokens, counted from 0"
            raise _invalid(body, f"{field}.{position}", words)
    if body.model != manifest.model_id:
        words = f"an activated adapter starts from the base model, '{manifest.model_id}', not from an adapter"
        raise _invalid(body, field, words)


def reduced_rank(limits: TenantLimits) -> int | None:
    """Return the rank to use if none is requested and the usual one is above the tenant's limit, else None."""
    max_rank = limits.max_adapter_rank
    if max_rank is None or max_rank >= _DEFAULT_RANK:
        return None
    check_rank(limits, max(1, max_rank))
    return max_rank


def _matches(module: str, target: str) -> bool:
    """Match a target as PEFT does."""
    return module == target or module.endswith(f".{target}")


def _invalid(body: JobCreate, field: str, words: str) -> InvalidRequest:
    param = f"{body.path}.{field}"
    return InvalidRequest(f"Invalid '{param}': {words}.", param=param, code="invalid_value")
