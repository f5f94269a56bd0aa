"""The parameters of an inference request, independent of its endpoint."""

from dataclasses import dataclass
from typing import Literal

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.generation.request import GenerationRequest, PoolingRequest, Target
from loragate.gateway.limits.lease import Lease

PoolingEndpoint = Literal["classify", "embeddings", "rerank", "score"]
Endpoint = Literal["chat", "completions", "messages", "responses"] | PoolingEndpoint

ESTIMATED_TOKENS = 256  # reserved for a completion whose length the caller did not bound, and again as it grows


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """The caller, the weights and the token budget of a request. `reserve` tokens are set aside before it starts."""

    caller: TenantPrincipal
    endpoint: Endpoint
    request_id: str  # of the transport
    target: Target
    prompt_tokens: int
    reserve: int
    lease: Lease | None = None  # charged already, by an estimate


def text_inference(
    caller: TenantPrincipal, endpoint: Endpoint, request_id: str, request: GenerationRequest
) -> InferenceRequest:
    """Return the request for all completions of all prompts of `request`."""
    max_tokens = request.sampling.max_tokens
    per_completion = min(ESTIMATED_TOKENS, max_tokens) if request.open_ended else max_tokens
    return InferenceRequest(
        caller=caller,
        endpoint=endpoint,
        request_id=request_id,
        target=request.target,
        prompt_tokens=request.prompt_tokens,
        reserve=request.prompt_tokens + per_completion * request.n * len(request.prompts),
        lease=request.lease,
    )


def pooling_inference(
    caller: TenantPrincipal, endpoint: PoolingEndpoint, request_id: str, request: PoolingRequest
) -> InferenceRequest:
    """Return the request for the vectors of all prompts of `request`, which uses no tokens but the prompts'."""
    return InferenceRequest(
        caller=caller,
        endpoint=endpoint,
        request_id=request_id,
        target=request.target,
        prompt_tokens=request.prompt_tokens,
        reserve=request.prompt_tokens,
        lease=request.lease,
    )
