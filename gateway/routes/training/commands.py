"""Commands to training runs. Each is answered with a future as soon as it is recorded."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.dependencies.json_body import JsonBody, json_object
from loragate.gateway.dependencies.raw_body import PROTOBUF, RawBody
from loragate.gateway.dependencies.requirements import Trainer
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.context import context_of
from loragate.gateway.http.envelope import json_response
from loragate.gateway.operations import training_commands as commands
from loragate.gateway.schemas.training.runs import (
    ExternalSave,
    ModelCreate,
    ModelRef,
    OptimStep,
    SamplerSave,
    WeightsLoad,
    WeightsSave,
)
from loragate.gateway.schemas.validation import validated
from loragate.gateway.services import Services

router = APIRouter(prefix="/api/v1", tags=["training"], include_in_schema=False)

Json = Annotated[bytes, Depends(RawBody())]
Protobuf = Annotated[bytes, Depends(RawBody(PROTOBUF))]


@router.post("/create_model")
async def create_model(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Create a run with a new adapter."""
    body = validated(ModelCreate, json_object(raw))
    return json_response(await commands.create(use, caller, _actor(request), body, raw))


@router.post("/load_weights")
async def load_weights(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Load a checkpoint, or a version of an adapter, into a run or into a new one."""
    body = validated(WeightsLoad, json_object(raw))
    return json_response(await commands.load(use, caller, _actor(request), body, raw))


@router.post("/forward_backward")
async def forward_backward(caller: Trainer, raw: Protobuf, request: Request, use: Use) -> Response:
    """Compute losses and, unless `forward_only`, add their gradients to the run's."""
    return json_response(await commands.forward_backward(use, caller, _actor(request), raw))


@router.post("/optim_step")
async def optim_step(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Apply the gradients."""
    return await _command(use, caller, request, OptimStep, raw)


@router.post("/save_weights")
async def save_weights(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Save the weights and the moments of AdamW as a checkpoint to train on."""
    return await _command(use, caller, request, WeightsSave, raw)


@router.post("/save_weights_for_sampler")
async def save_weights_for_sampler(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Save the adapter to sample from: as a version of an adapter, or for a sampler without a name."""
    return await _command(use, caller, request, SamplerSave, raw)


@router.post("/save_weights_external")
async def save_weights_external(caller: Trainer, raw: Json, request: Request, use: Use) -> Response:
    """Save the adapter in PEFT's format, to be downloaded."""
    return await _command(use, caller, request, ExternalSave, raw)


@router.post("/get_info")
async def get_info(caller: Trainer, body: Annotated[ModelRef, Depends(JsonBody(ModelRef))], use: Use) -> Response:
    """Describe a run's model."""
    base = use.link.base
    async with use.store.tenant(caller.tenant_id) as scope:
        run = await scope.training_runs.get(body.model_id)
    described = {"arch": base.manifest.architecture, "model_name": base.id, "tokenizer_id": base.id}
    return json_response(
        {
            "model_id": run.id,
            "model_data": described,
            "is_lora": True,
            "lora_rank": run.rank,
            "optimizer_config": {"type": "adamw"},
            "type": "get_info",
        }
    )


async def _command(
    use: Services, caller: TenantPrincipal, request: Request, model: type[commands.Command], raw: bytes
) -> Response:
    return json_response(await commands.command(use, caller, _actor(request), model, json_object(raw), raw))


def _actor(request: Request) -> Actor:
    return context_of(request.scope).actor
