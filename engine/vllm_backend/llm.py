"""What the backend needs of vLLM, and nothing else: one call for each completion, and adapters by number.

`async_llm` implements it with the real vLLM, and is the only module that imports it.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs


class CallRejected(Exception):
    """vLLM rejects the call; the message says why."""


class LlmDied(Exception):
    """vLLM's process ended: nothing can be computed any more."""


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter as vLLM knows it. A number is never used again, so no number ever means two adapters."""

    name: str
    number: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Call:
    """One completion. `sampling` are fields of vLLM's SamplingParams, `grammar` is in llguidance's dialect of Lark.

    Cached keys and values are shared only under one `cache_salt`.
    """

    id: str
    prompt: tuple[int, ...]
    cache_salt: str
    lora: Lora | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    grammar: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one step, or several that were taken together, computed for a call.

    `logprobs` are parallel to `tokens` if they were asked for. `finish` is vLLM's reason with the last step.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: PromptLogprobs | None = None
    cached_tokens: int = 0
    finish: str | None = None


class Llm(Protocol):
    """A running vLLM."""

    @property
    def died(self) -> bool:
        """Whether it can compute nothing any more."""
        ...

    def generate(self, call: Call) -> AsyncIterator[Step]:
        """Yield the steps of a call; it is aborted when the iterator is closed. Raise CallRejected, LlmDied."""
        ...

    async def add_lora(self, lora: Lora) -> None:
        """Load an adapter into a free slot. Raise CallRejected, LlmDied."""
        ...

    async def remove_lora(self, number: int) -> None:
        """Free the slot of an adapter that no call uses. Raise LlmDied."""
        ...

    async def stop(self) -> None: ...
