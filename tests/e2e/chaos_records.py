"""The questions of the chaos run, and records of the responses."""

import secrets
import time
from dataclasses import dataclass, field

import numpy as np
from history import COMPLETED, REJECTED, UNAUTHENTICATED, Request

PROMPTS: tuple[tuple[int, ...], ...] = ((5, 9, 13, 21, 200, 7), (40, 41, 42), (7,) * 40)
LENGTHS = (4, 24, 120)


@dataclass(frozen=True)
class Question:
    """A question, which has the same answer through every interface."""

    what: str  # text, chat or vector
    model: str
    prompt: tuple[int, ...]
    tokens: int

    @property
    def interfaces(self) -> tuple[str, ...]:
        if self.what == "text":
            return ("completion", "completion stream", "gRPC", "gRPC stream")
        return ("chat", "chat stream") if self.what == "chat" else ("embedding",)


def questions(models: tuple[str, ...]) -> list[Question]:
    texts = [Question("text", model, prompt, length) for model in models for prompt in PROMPTS for length in LENGTHS]
    chats = [Question("chat", model, prompt, 24) for model in models for prompt in PROMPTS]
    vectors = [Question("vector", model, prompt, 0) for model in models for prompt in PROMPTS]
    return texts + chats + vectors


@dataclass
class RequestRecord:
    """The response to one request.

    `ends` counts how often the response said that its text had ended. `usage` has the prompt and completion tokens that
    it reported; None if the client did not see its end.
    """

    tenant_id: str
    key_id: str
    question: Question
    interface: str
    sent: float = field(default_factory=time.time)
    ended: float = 0.0
    id: str = field(default_factory=lambda: f"chaos_{secrets.token_hex(8)}")
    outcome: str = "disconnected"
    ends: int = 0
    usage: tuple[int, int] | None = None
    pieces: int = 0
    text: str = ""
    vector: list[float] | None = None

    def contradicts(self, baseline: "RequestRecord") -> bool:
        """Return whether the response differs from the one without faults."""
        if self.vector is not None:
            return not np.allclose(self.vector, baseline.vector, atol=1e-4)
        if self.outcome != "completed":
            return not baseline.text.startswith(self.text)
        return (self.text, self.usage) != (baseline.text, baseline.usage)

    def observed(self, base_model: str) -> Request:
        """Return the record as a part of a history. The reference knows the texts of completions."""
        # Over gRPC, a stream that was cut off ends with the status of a rejection.
        status = {"401": UNAUTHENTICATED, "429": REJECTED, "503": REJECTED}
        rejected = None if self.pieces else status.get(self.outcome[:3])
        whole = self.interface in ("chat", "completion", "embedding", "gRPC")
        return Request(
            id=self.id,
            tenant_id=self.tenant_id,
            key_id=self.key_id,
            adapter=None if self.question.model == base_model else self.question.model,
            question=(self.question.prompt, self.question.tokens) if self.question.what == "text" else None,
            sent=self.sent,
            ended=self.ended,
            outcome=COMPLETED if self.outcome == "completed" else rejected or self.outcome,
            ends=int(self.outcome == "completed") if whole else self.ends,
            usage=self.usage,
            pieces=self.pieces,
            text=self.text,
        )
