"""Requests: what a client asks the engine to generate."""

import hashlib
import time
from dataclasses import dataclass, field

from loragate.engine.grammar.spec import Grammar
from loragate.engine.grammar.thinking import Thinking
from loragate.engine.sequence.pooling import Pooling


@dataclass(eq=False, slots=True)
class RequestTrace:
    """Timing of a request that its client traces.

    `traceparent` is W3C's trace context. Times are time.monotonic()s.
    """

    traceparent: str
    started_at: float | None = None  # the first step that computed some of it
    reported: bool = False

    def report(self, received: float, now: float) -> tuple[float, float] | None:
        """Return the seconds in the queue, and from there to its first output, which is now; None if already
        reported."""
        if self.reported or self.started_at is None:
            return None
        self.reported = True
        return self.started_at - received, now - self.started_at


@dataclass(frozen=True, slots=True)
class AdapterKey:
    """An adapter's content for one tenant.

    Two tenants never share an entry, even for equal bytes: loading times would reveal to one what the other holds.
    """

    tenant_id: str
    digest: str

    @property
    def opaque_id(self) -> str:
        """An identifier for display. It cannot be traced to its tenant without the tenant's id, which is random."""
        return "ad_" + hashlib.sha256(f"{self.tenant_id}\0{self.digest}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The parameters by which the next token is chosen. Neutral values disable a step: temperature 0 is greedy, top_k
    0, top_p 1, min_p 0, repetition_penalty 1 and the other penalties 0."""

    max_tokens: int
    seed: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """The fair share that a request uses.

    `weight` is the tenant's against others; a higher `priority` goes first within the tenant; `deadline` is a
    time.monotonic() by which its first token must be available. `elsewhere` are the units of service that the request's
    client saw other engines give the tenant. A `batch`'s request is computed only where it delays no other.
    """

    tenant_id: str
    weight: float = 1.0
    priority: int = 0
    deadline: float | None = None
    elsewhere: float = 0.0
    batch: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One submitted request; it becomes n sequences. Without a `cache_salt` its prefix is not shared.

    With `pooling` it generates no tokens: its one output is a vector, and `sampling` is ignored. With
    `prompt_logprobs` its first completion begins with the logprobs of the prompt's tokens and of so many alternatives.
    With `max_tokens` 0 it ends once its prompt is computed.
    """

    session_id: int
    request_id: int
    prompt: tuple[int, ...]
    adapter: AdapterKey | None
    sampling: SamplingParams
    n: int = 1
    share: Share = Share("")
    cache_salt: bytes = b""
    grammar: Grammar | None = None
    draft_tokens: int = 0  # maximum draft tokens per step, from prompt lookup
    pooling: Pooling | None = None
    thinking: Thinking | None = None  # before the answer, to which `grammar` applies
    prompt_logprobs: int | None = None
    trace: RequestTrace | None = field(default=None, compare=False)  # none if the request is not traced
    received: float = field(default_factory=time.monotonic, compare=False)

    @property
    def key(self) -> tuple[int, int]:
        return self.session_id, self.request_id
