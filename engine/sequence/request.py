"""What is kept of a request that its client traces, to tell it how long what took."""

import hashlib
import time
from dataclasses import dataclass, field

from loragate.engine.grammar.spec import Grammar
from loragate.engine.sequence.pooling import Pooling


@dataclass(eq=False, slots=True)
class RequestTrace:
    """`traceparent` is W3C's trace context. Times are time.monotonic()s."""

    traceparent: str
    begun: float | None = None  # the first step that computed some of it
    told: bool = False

    def tell(self, received: float, now: float) -> tuple[float, float] | None:
        """Seconds in the queue, and from there to the first of its answer, which is now; None when that was told."""
        if self.told or self.begun is None:
            return None
        self.told = True
        return self.begun - received, now - self.begun


@dataclass(frozen=True, slots=True)
class AdapterKey:
    """An adapter's content for one tenant. Two tenants never share an entry, even of equal bytes: loading times
    would tell one what the other holds."""

    tenant_id: str
    digest: str

    @property
    def opaque_id(self) -> str:
        """Stands for it where others may look. Nobody can tell whose it is without the tenant's id, which is random."""
        return "ad_" + hashlib.sha256(f"{self.tenant_id}\0{self.digest}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Neutral values switch a step off: temperature 0 is greedy, top_k 0,
    top_p 1, min_p 0, repetition_penalty 1 and the other penalties 0."""

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
    """Whose turn a request takes. `weight` is the tenant's against others; a higher `priority` goes first within
    the tenant; `deadline` is a time.monotonic() before which its first token must come."""

    tenant_id: str
    weight: float = 1.0
    priority: int = 0
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One submitted request; n of them become n sequences. Without a `cache_salt` it shares its prefix with nobody.

    With `pooling` it generates nothing: its one output is an embedding, and `sampling` says nothing.
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
    draft_tokens: int = 0  # guessed a step, at most, by prompt lookup
    pooling: Pooling | None = None
    trace: RequestTrace | None = field(default=None, compare=False)  # None: nobody traces it
    received: float = field(default_factory=time.monotonic, compare=False)

    @property
    def key(self) -> tuple[int, int]:
        return self.session_id, self.request_id
