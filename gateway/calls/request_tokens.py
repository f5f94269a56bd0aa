"""The tokens of one request: those that the engine computed, and those that were delivered to its client."""

from collections.abc import Callable, Sequence

from loragate.gateway.calls.inference_request import InferenceRequest
from loragate.gateway.generation.output import TextDelta
from loragate.gateway.metering.live_counters import Meter
from loragate.v1 import engine_pb2 as pb


class ComputedTokens:
    """The tokens that the engine computed for one admitted request, whether its client receives them or not.

    Each prompt is a request to the engine and counts once, however many completions it has. The engine reports what it
    computed with the end of each completion, also of aborted ones; until then the tokens that arrive are counted.
    """

    def __init__(self) -> None:
        self.prompt_tokens = 0  # of the prompts, as far as they were computed or found in the prefix cache
        self.computed_prompt_tokens = 0  # of these, those that were not found there
        self.generated_tokens = 0
        self.engine_id: str | None = None  # of the engine that a prompt was sent to last
        self._running = 0
        self._on_end: Callable[[], None] | None = None

    @property
    def tokens(self) -> int:
        """The tokens that count for the limits."""
        return self.prompt_tokens + self.generated_tokens

    def observe(self, prompt_tokens: int, completions: int) -> "EngineRequest":
        """Return the observer of one request to the engine."""
        return EngineRequest(self, prompt_tokens, completions)

    def when_ended(self, settle: Callable[[], None]) -> None:
        """Call `settle` once the engine does nothing more for the request: perhaps at once, perhaps after its client
        has left."""
        if self._running:
            self._on_end = settle
        else:
            settle()

    def begun(self) -> None:
        """Record that the engine has received one of the request's prompts."""
        self._running += 1

    def ended(self) -> None:
        """Record that the engine does nothing more for one of the prompts."""
        self._running -= 1
        if not self._running and self._on_end is not None:
            settle, self._on_end = self._on_end, None
            settle()


class EngineRequest:
    """Counts what the engine computes for one prompt and its completions; see `RequestObserver`."""

    def __init__(self, totals: ComputedTokens, prompt_tokens: int, completions: int) -> None:
        self._totals = totals
        self._length = prompt_tokens
        self._prompt = self._computed_prompt = 0  # of the completion that got the furthest
        self._generated = [0] * completions
        self._abort: Callable[[int], None] | None = None

    def placed(self, engine_id: str) -> None:
        self._totals.engine_id = engine_id

    def begun(self, abort: Callable[[int], None]) -> None:
        self._abort = abort
        self._totals.begun()

    def abort(self, index: int) -> None:
        """End one completion in the engine, because the rest of it is not needed."""
        if self._abort is not None:
            self._abort(index)

    def received(self, delta: pb.Delta) -> None:
        index, tokens = delta.index, len(delta.token_ids)
        if delta.HasField("computed"):
            reported = delta.computed
            self._reach(reported.prompt_tokens + reported.cached_tokens, reported.prompt_tokens)
            self._generate(index, reported.generated_tokens - self._generated[index])
            return
        if delta.embedding or (tokens and not self._generated[index]):
            self._reach(self._length, self._length - delta.cached_tokens)
        self._generate(index, tokens)

    def ended(self) -> None:
        self._totals.ended()

    def _reach(self, prompt: int, computed: int) -> None:
        """Count the prompt as far as one completion got, `computed` of it without the cache."""
        self._totals.prompt_tokens += max(0, prompt - self._prompt)
        self._totals.computed_prompt_tokens += max(0, computed - self._computed_prompt)
        self._prompt, self._computed_prompt = max(prompt, self._prompt), max(computed, self._computed_prompt)

    def _generate(self, index: int, tokens: int) -> None:
        self._generated[index] += tokens
        self._totals.generated_tokens += tokens


class DeliveredTokens:
    """Tokens count when they are handed to the client's connection; a prompt's tokens count with the first of its
    completion.

    Tokens whose text is held back, as part of a character or of a possible stop string, count with the next piece that
    is sent. A response that is sent as a whole is counted as it grows, and committed just before it is sent.
    """

    def __init__(self, request: InferenceRequest, meter: Meter, computed: ComputedTokens) -> None:
        self._request = request
        self._meter = meter
        self._computed = computed
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
        if not (delta.text or delta.reasoning or delta.logprobs or delta.finish_reason):
            self._held[delta.index] = tokens, cached_tokens
            self._report(durable=False)
            return
        self.prompt_tokens = self._request.prompt_tokens
        self.completion_tokens += tokens
        self.cached_tokens += cached_tokens
        self._report(durable=streamed)

    def add_pooled(self, prompt: Sequence[int]) -> None:
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
        computed = self._computed
        self._meter.record_computed(computed.computed_prompt_tokens, computed.generated_tokens)
        self._meter.update(self.prompt_tokens, self.completion_tokens, self.cached_tokens, durable=durable)
