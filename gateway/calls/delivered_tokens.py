"""The tokens that were delivered to the client of one request."""

from collections.abc import Sequence

from loragate.gateway.calls.inference_request import InferenceRequest
from loragate.gateway.generation.output import TextDelta
from loragate.gateway.metering.live_counters import Meter


class DeliveredTokens:
    """Tokens count when they are handed to the client's connection; a prompt's tokens count with the first of its
    completion.

    Tokens whose text is held back, as part of a character or of a possible stop string, count with the next piece that
    is sent. A response that is sent as a whole is counted as it grows, and committed just before it is sent.
    """

    def __init__(self, request: InferenceRequest, meter: Meter) -> None:
        self._request = request
        self._meter = meter
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.cached_tokens = 0
        self._held: dict[int, tuple[int, int]] = {}  # by completion: its own tokens, and cached ones of the prompt

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def add(self, delta: TextDelta, *, streamed: bool) -> None:
        """Count a piece of a completion."""
        tokens, cached_tokens = self._held.pop(delta.index, (0, 0))
        tokens, cached_tokens = tokens + delta.tokens, cached_tokens + delta.cached_tokens
        if not (delta.text or delta.logprobs or delta.finish_reason):
            self._held[delta.index] = tokens, cached_tokens
            return
        self.prompt_tokens = self._request.prompt_tokens
        self.completion_tokens += tokens
        self.cached_tokens += cached_tokens
        self._report(durable=streamed)

    def add_embedding(self, prompt: Sequence[int]) -> None:
        """Count the vector of one prompt."""
        self.prompt_tokens += len(prompt)
        self._report(durable=False)

    def commit(self) -> None:
        """Record that the whole response is about to be sent."""
        self._report(durable=True)

    def revert(self) -> None:
        """Count nothing: the client gets an error in place of a response that is sent as a whole."""
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self._report(durable=True)

    def _report(self, *, durable: bool) -> None:
        self._meter.update(self.prompt_tokens, self.completion_tokens, self.cached_tokens, durable=durable)
