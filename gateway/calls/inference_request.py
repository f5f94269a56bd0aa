"""What one inference request asks for, whatever its endpoint."""

from dataclasses import dataclass
from typing import Literal

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.generation.request import GenerationRequest, PoolingRequest, Target

Endpoint = Literal["chat", "completions", "embeddings", "responses"]

ESTIMATED_TOKENS = 256  # reserved for a completion whose length the caller did not bound, and again as it grows


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks which weights for how much. `reserve` tokens are set aside before it begins."""

    caller: TenantPrincipal
    endpoint: Endpoint
    request_id: str  # of the transport
    target: Target
    prompt_tokens: int
    reserve: int


def ask_for_text(caller: TenantPrincipal, endpoint: Endpoint, request_id: str, request: GenerationRequest) -> Ask:
    """All completions of all prompts."""
    longest = request.sampling.max_tokens
    each = min(ESTIMATED_TOKENS, longest) if request.open_ended else longest
    reserve = request.prompt_tokens + each * request.n * len(request.prompts)
    return Ask(caller, endpoint, request_id, request.target, request.prompt_tokens, reserve)


def ask_for_embeddings(caller: TenantPrincipal, request_id: str, request: PoolingRequest) -> Ask:
    """Nothing but the prompts."""
    return Ask(caller, "embeddings", request_id, request.target, request.prompt_tokens, request.prompt_tokens)
