"""One completion: from token ids to reasoning and text that may be sent."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from loragate.gateway.generation.output import FinishReason, TextDelta, TokenLogprob
from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.reasoning.format import Divided
from loragate.gateway.text.detokenizer import detokenizer
from loragate.gateway.text.stop_strings import StopMatcher
from loragate.v1 import engine_pb2 as pb

_REASONS: dict[int, FinishReason] = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}


class Choice:
    """Detokenizes, separates reasoning, matches stop strings, and releases the logprob of a token together with the
    token's text.

    Stop strings and logprobs are those of the answer only. With those of an echoed prompt, a stop token has one too:
    programs that score text take the prompt's as all but the last `max_tokens` of them.
    """

    def __init__(self, request: GenerationRequest, prompt: Sequence[int], index: int) -> None:
        self.index = index
        self.finished = False
        shown = request.base.tool_tokens.values() if request.tools else ()
        self._detokenizer = detokenizer(request.base.tokenizer, prompt, shown)
        use = request.reasoning
        self._reader = None if use is None else use.reader(calls=request.tools is not None)
        self._shows_reasoning = use is not None and use.include
        self._matcher = StopMatcher(request.stop, include_stop=request.include_stop)
        self._is_plain = use is None and not request.stop and not request.sampling.HasField("top_logprobs")
        self._keep_stop_token = request.include_stop
        self._scores_stop_token = request.echo_logprobs is not None
        self._stop_tokens = frozenset((*request.base.manifest.eos_token_ids, *request.sampling.stop_token_ids))
        self._decoded = 0  # characters decoded from tokens so far
        self._sent = 0  # characters of them released so far
        self._reasoning: list[str] = []  # of the current delta
        self._reasoning_tokens = 0
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()  # with the end of the token's text

    def push(self, delta: pb.Delta) -> TextDelta:
        """Return what the engine's delta adds. Tokens after a stop string are neither sent nor counted."""
        if self._is_plain:
            return self._push_plain(delta)
        text, tokens = "", 0
        self._reasoning, self._reasoning_tokens = [], 0
        for position, token_id in enumerate(delta.token_ids):
            tokens += 1
            if self._is_stop_token(delta, position):
                if self._scores_stop_token:
                    self._wait(delta, position, 0)
                break
            piece = self._detokenizer.push(token_id)
            if self._reader is not None:
                divided = self._reader.push(token_id, piece)
                self._add_reasoning(divided)
                if divided.is_reasoning and not divided.answer:
                    continue
                piece = divided.answer
            self._wait(delta, position, len(piece))
            matched = self._matcher.push(piece)
            text += matched.text
            if matched.stop is not None:
                return self._end(text, tokens, "stop", matched.stop)
        if delta.finish_reason:
            return self._finish(text, tokens, _REASONS[delta.finish_reason])
        self._sent += len(text)
        return self._delta(text, tokens, self._released())

    def _push_plain(self, delta: pb.Delta) -> TextDelta:
        """Return the same where nothing depends on the single tokens."""
        ids = delta.token_ids
        shown = ids[:-1] if ids and self._is_stop_token(delta, len(ids) - 1) else ids
        text = self._detokenizer.push(*shown)
        if delta.finish_reason:
            self.finished = True
            reason = _REASONS[delta.finish_reason]
            return TextDelta(self.index, text + self._detokenizer.finish(), len(ids), (), reason)
        return TextDelta(self.index, text, len(ids))

    def _finish(self, text: str, tokens: int, reason: FinishReason) -> TextDelta:
        rest = self._detokenizer.finish()
        if self._reader is not None:
            divided = self._reader.finish(rest)
            self._add_reasoning(divided)
            rest = divided.answer
        self._decoded += len(rest)
        matched = self._matcher.push(rest)
        if matched.stop is not None:
            return self._end(text + matched.text, tokens, "stop", matched.stop)
        return self._end(text + matched.text + self._matcher.finish(), tokens, reason)

    def _end(self, text: str, tokens: int, reason: FinishReason, stop: str | None = None) -> TextDelta:
        self.finished = True
        self._sent += len(text)
        kept = tuple(token for _, token in self._waiting if stop is None or token.offset < self._sent)
        delta = self._delta(text, tokens, kept, reason)
        return delta if stop is None else replace(delta, stop=stop)

    def _add_reasoning(self, divided: Divided) -> None:
        self._reasoning_tokens += divided.is_reasoning
        if divided.reasoning and self._shows_reasoning:
            self._reasoning.append(divided.reasoning)

    def _delta(
        self, text: str, tokens: int, logprobs: tuple[TokenLogprob, ...], reason: FinishReason | None = None
    ) -> TextDelta:
        if self._reader is None:
            return TextDelta(self.index, text, tokens, logprobs, reason)
        reasoning = "".join(self._reasoning)
        return TextDelta(self.index, text, tokens, logprobs, reason, 0, reasoning, self._reasoning_tokens)

    def _is_stop_token(self, delta: pb.Delta, position: int) -> bool:
        """Return whether the token is EOS or a stop token id, which ends the completion without being part of its text.
        The last token of a grammar is part of it."""
        if self._keep_stop_token or delta.finish_reason != pb.FINISH_REASON_STOP:
            return False
        return position == len(delta.token_ids) - 1 and delta.token_ids[position] in self._stop_tokens

    def _wait(self, delta: pb.Delta, position: int, length: int) -> None:
        start, self._decoded = self._decoded, self._decoded + length
        if delta.logprobs:
            given = delta.logprobs[position]
            top = tuple((candidate.token_id, candidate.logprob) for candidate in given.top)
            token = TokenLogprob(delta.token_ids[position], start, given.logprob, top)
            self._waiting.append((self._decoded, token))

    def _released(self) -> tuple[TokenLogprob, ...]:
        released = []
        while self._waiting and self._waiting[0][0] <= self._sent:
            released.append(self._waiting.popleft()[1])
        return tuple(released)
