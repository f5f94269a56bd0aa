"""Checked requests to the generation service, and their share of the engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.generation.constraint import Constraint
from loragate.gateway.generation.reasoning import ReasoningUse
from loragate.gateway.limits.lease import Lease
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.message import ToolUse
from loragate.peft_format.classification import Classifier
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Target:
    """The weights that a request uses. They are resolved once: a request keeps its version until it ends, even if the
    alias changes."""

    tenant_id: str
    adapter: ResolvedAdapter | None
    cache_user: str | None = None  # the only user of this prefix cache; None: the tenant shares one

    @property
    def headers(self) -> dict[str, str]:
        """The header `x-loragate-adapter`; none if only the base model is used."""
        if self.adapter is None:
            return {}
        adapter = self.adapter
        return {"x-loragate-adapter": f"{adapter.name}:{adapter.version}@{adapter.digest}"}

    @property
    def classifier(self) -> Classifier | None:
        """The labels of a classifier; None for a target that generates."""
        return None if self.adapter is None else self.adapter.classifier

    @property
    def reference(self) -> pb.AdapterRef | None:
        """The adapter in the engine's terms."""
        if self.adapter is None:
            return None
        return pb.AdapterRef(tenant_id=self.tenant_id, digest=self.adapter.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A checked request: its prompts are not empty, in the vocabulary, and fit the context with `sampling.max_tokens`.

    The completions of prompt p have the indices p·n … p·n + n - 1.
    """

    target: Target
    base: BaseModel
    prompts: tuple[Sequence[int], ...]
    sampling: pb.Sampling
    n: int = 1
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    constraint: Constraint | None = None  # None: any text
    tools: ToolUse | None = None  # their calls are parsed from the text
    reasoning: ReasoningUse | None = None  # None: all text is the answer
    draft_tokens: int = 0  # the maximum per step
    prompt_logprobs: int | None = None  # alternatives of each prompt token in the response; None: it has none
    echo_logprobs: int | None = None  # the same in front of each completion's own
    share: pb.Share | None = None  # its place in the engine's order; None: that of any request of the tenant
    open_ended: bool = False  # the caller gave no limit: `sampling.max_tokens` is a default
    lease: Lease | None = None  # the limits were charged already, by an estimate

    @property
    def scored_alternatives(self) -> int | None:
        """The alternatives that the engine is to return for each prompt token; None if prompts are not scored."""
        return max((top for top in (self.prompt_logprobs, self.echo_logprobs) if top is not None), default=None)

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts. Each prompt counts once, however large n is."""
        return sum(map(len, self.prompts))


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """A checked request: its prompts are not empty, in the vocabulary, and fit the context."""

    target: Target
    base: BaseModel
    prompts: tuple[Sequence[int], ...]
    pooling: pb.Pooling
    share: pb.Share
    lease: Lease | None = None  # the limits were charged already, by an estimate
    spans: tuple[list[tuple[int, int]], ...] = ()  # the characters of each prompt's tokens; none if they are not texts

    @property
    def classifier(self) -> Classifier:
        """The labels of the target, which must be a classifier."""
        assert self.target.classifier is not None
        return self.target.classifier

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))


@dataclass(frozen=True, slots=True)
class Pooled:
    """The vector of prompt `index`."""

    index: int
    vector: npt.NDArray[np.float32]  # [hidden size], not normalized; or logits: [labels], or [tokens · labels]


def share_of(caller: TenantPrincipal, priority: int | None, config: GatewayConfig, *, batch: bool = False) -> pb.Share:
    """Return the share of a request. The tenant's weight counts among tenants, the request's priority among those of
    the same tenant. A batch's requests have no deadline, and come behind all others."""
    if batch:
        return pb.Share(tenant_id=caller.tenant_id, weight=caller.weight, priority=priority or 0, batch=True)
    return share_of_tenant(caller.tenant_id, caller.weight, config, priority or 0)


def share_of_tenant(tenant_id: str, weight: float, config: GatewayConfig, priority: int = 0) -> pb.Share:
    """Return a share of the tenant, for work that is not a request."""
    deadline_ms = round(1000 * (config.first_token_deadline_seconds or 0))
    return pb.Share(tenant_id=tenant_id, weight=weight, priority=priority, deadline_ms=deadline_ms)
