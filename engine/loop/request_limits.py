"""The limits that every request must meet, and the conditions that end a sequence."""

from dataclasses import dataclass

from loragate.engine.sequence.output import FinishReason
from loragate.engine.sequence.request import Request
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ModelLimits:
    max_model_len: int
    vocab_size: int
    eos: frozenset[int]
    embeds: bool  # the model's head is known, see ModelRunner.embeds

    def problem(self, request: Request) -> str | None:
        """Return why a request cannot run, or None. The gateway has checked it, but other clients may not have."""
        if not request.prompt:
            return "the prompt is empty"
        if request.pooling is not None and not self.embeds:
            return "this model's head is not known, so it cannot compute embeddings"
        if request.pooling is not None and request.pooling.classifies and request.adapter is None:
            return "the base model has no head for labels"
        if request.pooling is not None and (request.n > 1 or (request.grammar, request.thinking) != (None, None)):
            return "a prompt has one embedding: n must be 1, and neither a grammar nor thinking is allowed"
        if request.pooling is not None and request.prompt_logprobs is not None:
            return "prompt_logprobs cannot be combined with pooling"
        if len(request.prompt) + (request.pooling is None and request.sampling.max_tokens > 0) > self.max_model_len:
            return f"the prompt's {len(request.prompt)} tokens leave no room in {self.max_model_len}"
        if not 0 <= min(request.prompt) <= max(request.prompt) < self.vocab_size:
            return f"a token id of the prompt is outside the vocabulary of {self.vocab_size}"
        sampling = request.sampling
        listed = [*(t for t, _ in sampling.logit_bias), *sampling.stop_token_ids]
        if listed and not 0 <= min(listed) <= max(listed) < self.vocab_size:
            return f"a token id of logit_bias or stop_token_ids is outside the vocabulary of {self.vocab_size}"
        if request.thinking is not None:
            return request.thinking.problem(self.vocab_size, self.eos)
        return None

    def finish(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Return why the sequence ends with this token, its last one, or None if it goes on."""
        sampling = sequence.request.sampling
        if token in sampling.stop_token_ids or (token in self.eos and not sampling.ignore_eos):
            return FinishReason.STOP
        if sequence.matcher is not None and sequence.matcher.complete:
            return FinishReason.STOP
        if sequence.generated >= sampling.max_tokens or len(sequence.tokens) >= self.max_model_len:
            return FinishReason.LENGTH
        return None
