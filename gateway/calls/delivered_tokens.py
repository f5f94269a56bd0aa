"""What a client has been told so far."""

from collections.abc import Sequence

from loragate.gateway.calls.inference_request import Ask
from loragate.gateway.generation.output import TextDelta
from loragate.gateway.metering.meter import Meter


class Told:
    """Counted when it is handed to the client's connection; so are a prompt's tokens, with the first of its answer.

    Tokens whose text is held back, as a part of a character or of what may become a stop string, count with the next
    piece that goes out. An answer that comes whole or not at all is counted as it grows, and said to be `whole` before
    it goes out.
    """

    def __init__(self, ask: Ask, meter: Meter) -> None:
        self._ask = ask
        self._meter = meter
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self._held: dict[int, tuple[int, int]] = {}  # by completion: its own tokens, and cached ones of the prompt

    @property
    def tokens(self) -> int:
        """In all."""
        return self.prompt_tokens + self.completion_tokens

    def hear(self, delta: TextDelta, *, streamed: bool) -> None:
        """A piece of a completion."""
        tokens, cached_tokens = self._held.pop(delta.index, (0, 0))
        tokens, cached_tokens = tokens + delta.tokens, cached_tokens + delta.cached_tokens
        if not (delta.text or delta.logprobs or delta.finish_reason):
            self._held[delta.index] = tokens, cached_tokens
            return
        self.prompt_tokens = self._ask.prompt_tokens
        self.completion_tokens += tokens
        self.cached_tokens += cached_tokens
        self._say(durable=streamed)

    def hear_embedding(self, prompt: Sequence[int]) -> None:
        """One prompt's vector."""
        self.prompt_tokens += len(prompt)
        self._say(durable=False)

    def whole(self) -> None:
        """All of it goes out now."""
        self._say(durable=True)

    def take_back(self) -> None:
        """An error is all that the client gets: an answer that comes whole or not at all did not come."""
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self._say(durable=True)

    def _say(self, *, durable: bool) -> None:
        self._meter.update(self.prompt_tokens, self.completion_tokens, self.cached_tokens, durable=durable)
