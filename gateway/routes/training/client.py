"""What the SDK asks for when it starts."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Trainer, public
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import NotFound
from loragate.gateway.http.envelope import json_response
from loragate.gateway.schemas.training.sessions import ClientVersion

router = APIRouter(prefix="/api/v1", tags=["training"], include_in_schema=False)

CLIENT_CONFIG = {
    "pjwt_auth_enabled": False,  # keys are sent as they are
    "parallel_fwdbwd_chunks": True,
    "proto_compress_fwdbwd": False,
    "fwdbwd_max_chunk_len": 128,  # sequences in one request: turns between tenants stay short
    "fwdbwd_max_chunk_bytes_count": 1_000_000,
    "sample_max_concurrent_requests": 256,
    "billing_exception_max_pause_duration_sec": 60,
    "custom_loss_server_side": False,
    "sample_use_retrieve_futures": False,
    "sample_join_sampling_session": False,
}
"""The flags of the SDK, as this server wants them."""

_REFRESH_SECONDS = 3600


@router.post("/client/config")
async def client_config(caller: Trainer, body: Annotated[ClientVersion, Depends(JsonBody(ClientVersion))]) -> Response:
    """Return the flags of the client."""
    return json_response(CLIENT_CONFIG)


@router.post("/client/dynamic_config")
async def dynamic_config(caller: Trainer) -> Response:
    """Return the flags that a client reads again now and then."""
    return json_response({"refresh_interval_sec": _REFRESH_SECONDS, "sample_cancel_enabled": False})


@router.post("/telemetry", status_code=202)
async def telemetry(caller: Trainer) -> Response:
    """Accept a client's reports, which may hold its request headers, and read nothing of them."""
    return json_response({"status": "accepted"}, 202)


@router.get("/get_server_capabilities")
async def capabilities(caller: Trainer, use: Use) -> Response:
    """Return the models that can be trained and sampled from."""
    base = use.link.base
    model = {
        "model_name": base.id,
        "max_context_length": base.max_model_len,
        "trainable": True,
        "sampleable": True,
    }
    return json_response({"supported_models": [model]})


@router.get("/healthz", dependencies=[public])
async def healthz() -> Response:
    """Report that the gateway responds."""
    return json_response({"status": "ok"})


@router.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE"])
async def unknown(path: str, caller: Trainer, request: Request) -> Response:
    """Reject what this server does not have. The SDK shows the message."""
    words = _ALTERNATIVES.get(path.partition("/")[0], "This server does not have it; see docs/training-api.md.")
    raise NotFound(f"{request.method} /api/v1/{path[:100]}: {words}", code="unsupported")


_ALTERNATIVES = {
    "auth": "keys are not exchanged for tokens; send the tenant's key with the prefix `tml-`.",
    "copy_weights": "checkpoints are not copied between projects; load one into a new run.",
    "create_custom_loss": "custom losses run in the client: call `forward_backward_custom` with a function.",
    "billing": "use GET /v1/usage.",
}
