"""Samplers, requests to them, and futures."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.adapter_store.training.objects import (
    CommandKind,
    Outcome,
    RequestStatus,
    Sampler,
    sampler_id_of,
)
from loragate.gateway.dependencies.json_body import JsonBody, json_object
from loragate.gateway.dependencies.raw_body import PROTOBUF, RawBody
from loragate.gateway.dependencies.requirements import Trainer
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import InvalidRequest, NotFound
from loragate.gateway.http.disconnect import supervise
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.training import sampler_object
from loragate.gateway.operations.training_commands import weights_of
from loragate.gateway.schemas.training.sampling import FutureRef, SampleCreate, SamplerCreate
from loragate.gateway.schemas.validation import validated
from loragate.gateway.training.futures import Gone, Pending

router = APIRouter(prefix="/api/v1", tags=["training"], include_in_schema=False)

_HOLD_SECONDS = (
    40.0  # a poll is held at most so long: less than the client's timeout, after which it polls again at once
)
_INLINE_BYTES = 4 << 20  # a larger result is announced first, if the client allows it
_GONE = 410


@router.post("/create_sampling_session")
async def create_sampling_session(
    caller: Trainer, body: Annotated[SamplerCreate, Depends(JsonBody(SamplerCreate))], use: Use
) -> Response:
    """Create a sampler of a checkpoint, of an adapter, or of the base model."""
    base = use.link.base
    if body.model_path is None and body.base_model not in (None, base.id):
        words = f"Invalid 'base_model': this server serves {base.id!r}."
        raise InvalidRequest(words, param="base_model", code="model_not_found")
    weights = None
    if body.model_path is not None:
        weights = await weights_of(use, caller, body.model_path, "model_path")
    sampler_id = sampler_id_of(body.session_id, body.sampling_session_seq_id)
    sampler = Sampler(
        id=sampler_id,
        session_id=body.session_id,
        model_path=body.model_path,
        adapter=None if weights is None else weights.adapter,
        version=None if weights is None else weights.version,
        digest=None if weights is None else weights.digest,
        size_bytes=0 if weights is None else weights.size_bytes,
    )
    async with use.store.tenant(caller.tenant_id, write=True) as scope:
        await scope.training_sessions.require(body.session_id)
        await scope.training_samplers.create(sampler)
    return json_response({"sampling_session_id": sampler_id, "type": "create_sampling_session"})


@router.get("/samplers/{sampler_id}")
async def get_sampler(sampler_id: str, caller: Trainer, use: Use) -> Response:
    """Get a sampler."""
    async with use.store.tenant(caller.tenant_id) as scope:
        sampler = await scope.training_samplers.get(sampler_id)
    return json_response(sampler_object(sampler, use.link.base.id))


@router.post("/asample")
async def asample(caller: Trainer, raw: Annotated[bytes, Depends(RawBody())], use: Use) -> Response:
    """Sample from a sampler. The result has each token with its logprob, before the temperature."""
    body = validated(SampleCreate, json_object(raw))
    request_id = await use.samples.submit(caller, body, raw)
    sequences = [f"{request_id}:{number}" for number in range(body.num_samples)]
    return json_response({"request_id": request_id, "sample_sequence_ids": sequences})


@router.post("/retrieve_future")
async def retrieve_future(
    caller: Trainer, body: Annotated[FutureRef, Depends(JsonBody(FutureRef))], request: Request, use: Use
) -> Response:
    """Wait for the result of a request; after a while, respond that it is still pending."""
    waiting = use.futures.wait(caller.tenant_id, body.request_id, _HOLD_SECONDS)
    state = await supervise(waiting, request.receive, use.lifecycle)
    if isinstance(state, Gone):
        return json_response({"error": "This request was lost; send it again under a new number."}, _GONE)
    if isinstance(state, Pending):
        paused = "active" if state.paused is None else "paused_capacity"
        if state.is_rate_limited:
            paused = "paused_rate_limit"
        reason = {} if state.paused is None else {"queue_state_reason": state.paused}
        return json_response({"type": "try_again", "request_id": body.request_id, "queue_state": paused, **reason})
    return _result(state, body)


def _result(outcome: Outcome, body: FutureRef) -> Response:
    if outcome.status is RequestStatus.FAILED:
        return json_response({"error": outcome.error, "category": outcome.category})
    if body.allow_metadata_only and len(outcome.result) > _INLINE_BYTES:
        size = len(outcome.result)
        return json_response({"status": "complete_metadata", "response_payload_size": size})
    is_protobuf = outcome.kind in (None, CommandKind.FORWARD_BACKWARD)
    return Response(outcome.result, media_type=PROTOBUF if is_protobuf else "application/json")


@router.post("/cancel_future")
async def cancel_future(caller: Trainer, body: Annotated[FutureRef, Depends(JsonBody(FutureRef))]) -> Response:
    """Reject a cancellation: the client's configuration says that there is none."""
    raise NotFound("Requests are not cancelled; their results may be left unread.", code="unsupported")
