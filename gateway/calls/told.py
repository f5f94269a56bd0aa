"""What a client has been told so far."""

import time
from collections.abc import Sequence

from loragate.gateway.calls.ask import Ask
from loragate.gateway.generation.delta import TextDelta


class Told:
    """Counted when it is handed to the client's connection; so are a prompt's tokens, with the first of its answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self.first_at: float | None = None  # monotonic

    @property
    def tokens(self) -> int:
        """In all."""
        return self.prompt_tokens + self.completion_tokens

    def hear(self, delta: TextDelta) -> None:
        """A piece of a completion."""
        if self.first_at is None:
            self.first_at = time.monotonic()
            self.prompt_tokens = self._ask.prompt_tokens
        self.completion_tokens += delta.tokens
        self.cached_tokens += delta.cached_tokens

    def hear_embedding(self, prompt: Sequence[int]) -> None:
        """One prompt's vector."""
        self.first_at = self.first_at or time.monotonic()
        self.prompt_tokens += len(prompt)

    def take_back(self) -> None:
        """An error is all that the client gets: an answer that comes whole or not at all did not come."""
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self.first_at = None
