"""A bounded thought before the answer: any tokens up to a budget, closing tokens, then the grammar of the answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from loragate.engine.grammar.allowed_tokens import ANY_TOKENS, AllowedTokens
from loragate.engine.grammar.matcher import GrammarFailed, Matcher

MAX_MARKER_TOKENS = 64

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a thought begins and ends, in tokens.

    The engine generates `end` when the thought has `max_tokens`. The thought also ends where the model itself generates
    `end_marker`, a part of `end`. It is `open` if it began in the prompt; otherwise it begins with `start`, as the
    first tokens of the completion, or there is none. The tokens of `start` and of a generated `end` do not count.
    """

    end: Tokens
    end_marker: Tokens
    max_tokens: int | None = None  # no limit but the request's
    open: bool = False
    start: Tokens = ()  # not read if `open`

    def problem(self, vocab_size: int, eos: frozenset[int]) -> str | None:
        """Return why a request cannot have this, with the field's name, or None."""
        if not self.open and not self.start:
            return "thinking.start is empty: give the tokens that begin a thought, or set thinking.open"
        if self.max_tokens is not None and self.max_tokens < 0:
            return "thinking.max_tokens is negative: give 0 or more"
        for field in ("end", "end_marker", "start"):
            problem = _problem_of(getattr(self, field), vocab_size, eos)
            if problem is not None and (field != "start" or self.start):
                return f"thinking.{field} {problem}"
        if self._marker_at is None:
            return "thinking.end_marker does not occur in thinking.end: the engine could not close a thought"
        return None

    def closing_after(self, thought: Tokens) -> Tokens:
        """Return the tokens of `end` that close the thought; those that it ends with are not repeated."""
        from_marker = self.end[self._marker_at :]
        whole, part = _overlap(thought, self.end), _overlap(thought, from_marker)
        return from_marker[part:] if part > whole else self.end[whole:]

    @property
    def _marker_at(self) -> int | None:
        length = len(self.end_marker)
        places = (i for i in range(len(self.end) - length + 1) if self.end[i : i + length] == self.end_marker)
        return next(places, None)


class _Phase(Enum):
    START = auto()  # the first tokens decide whether there is a thought
    THOUGHT = auto()
    CLOSING = auto()
    ANSWER = auto()


class ThinkingMatcher:
    """The state of one sequence in its thought and, after it, in the grammar of its answer, if that has one.

    In a thought EOS is allowed only if no grammar follows: otherwise the text would end without its answer. The grammar
    begins directly after the marker that the model generated, or after the last token of an `end` that the engine did.
    """

    def __init__(self, thinking: Thinking, answer: Matcher | None, eos: frozenset[int]) -> None:
        self._thinking = thinking
        self._eos = eos
        self._answer = answer  # not advanced before the answer begins
        self._in_thought = ANY_TOKENS if answer is None else AllowedTokens(every=True, forbidden=eos)
        self._phase = _Phase.START
        self._unread_start = thinking.start
        self._early_answer = answer  # the answer if `start` does not follow whole; None if it is no answer
        self._count = 0
        self._recent: Tokens = ()  # the thought's last tokens, as many as `end` has
        self._closing: Tokens = ()
        if thinking.open:
            self._begin_thought()

    def fork(self) -> "ThinkingMatcher":
        """Return an independent matcher in the same state."""
        other = ThinkingMatcher.__new__(ThinkingMatcher)
        other.__dict__.update(self.__dict__)
        other._answer = self._answer and self._answer.fork()
        other._early_answer = self._early_answer and self._early_answer.fork()
        return other

    @property
    def allowed(self) -> AllowedTokens:
        """The tokens that may come next."""
        match self._phase:
            case _Phase.START:
                return self._allowed_at_start
            case _Phase.THOUGHT:
                return self._in_thought
            case _Phase.CLOSING:
                return AllowedTokens(frozenset(self._closing[:1]))
            case _Phase.ANSWER:
                return ANY_TOKENS if self._answer is None else self._answer.allowed

    @property
    def complete(self) -> bool:
        """Whether the answer matches its grammar and cannot be continued."""
        answer = {_Phase.START: self._early_answer, _Phase.ANSWER: self._answer}.get(self._phase)
        return answer is not None and answer.complete

    def advance(self, token: int) -> None:
        """Accept a token. Raise GrammarFailed."""
        match self._phase:
            case _Phase.START:
                self._advance_start(token)
            case _Phase.THOUGHT:
                self._advance_thought(token)
            case _Phase.CLOSING:
                self._advance_closing(token)
            case _Phase.ANSWER if self._answer is not None:
                self._answer.advance(token)

    @property
    def _allowed_at_start(self) -> AllowedTokens:
        if self._answer is None:
            return ANY_TOKENS
        begun = AllowedTokens() if self._early_answer is None else self._early_answer.allowed
        return begun.also(frozenset(self._unread_start[:1]))

    def _advance_start(self, token: int) -> None:
        if token != self._unread_start[0]:
            self._begin_early_answer(token)
            return
        self._unread_start = self._unread_start[1:]
        if self._unread_start:
            self._early_answer = _advanced(self._early_answer, token)
        else:
            self._begin_thought()

    def _begin_early_answer(self, token: int) -> None:
        if self._answer is not None:
            if self._early_answer is None:
                raise GrammarFailed("a token other than the next one that begins a thought was generated")
            self._early_answer.advance(token)
        self._phase, self._answer = _Phase.ANSWER, self._early_answer

    def _begin_thought(self) -> None:
        self._phase, self._early_answer = _Phase.THOUGHT, None
        self._close_at_budget()

    def _advance_thought(self, token: int) -> None:
        marker = self._thinking.end_marker
        self._count += 1
        self._recent = (*self._recent, token)[-len(self._thinking.end) :]
        if self._recent[-len(marker) :] == marker:
            self._phase = _Phase.ANSWER
        else:
            self._close_at_budget()

    def _close_at_budget(self) -> None:
        budget = self._thinking.max_tokens
        if budget is not None and self._count >= budget:
            self._phase, self._closing = _Phase.CLOSING, self._thinking.closing_after(self._recent)

    def _advance_closing(self, token: int) -> None:
        if token != self._closing[0]:
            raise GrammarFailed("a token other than the thought's closing one was generated")
        self._closing = self._closing[1:]
        if not self._closing:
            self._phase = _Phase.ANSWER


def matcher_for(thinking: Thinking, answer: Matcher | None, eos: frozenset[int]) -> Matcher | None:
    """Return the matcher of one sequence, given its own of the answer; None if it may generate any text."""
    if answer is None and thinking.max_tokens is None:
        return answer
    return ThinkingMatcher(thinking, answer, eos)


def _advanced(matcher: Matcher | None, token: int) -> Matcher | None:
    """Return a matcher that has accepted the token, or None if the grammar does not allow it."""
    if matcher is None:
        return None
    ahead = matcher.fork()
    try:
        ahead.advance(token)
    except GrammarFailed:
        return None
    return ahead


def _overlap(thought: Tokens, end: Tokens) -> int:
    """Return how many tokens of `end` the thought ends with."""
    return next((n for n in range(min(len(thought), len(end)), 0, -1) if thought[-n:] == end[:n]), 0)


def _problem_of(tokens: Sequence[int], vocab_size: int, eos: frozenset[int]) -> str | None:
    return next(_problems_of(tokens, vocab_size, eos), None)


def _problems_of(tokens: Sequence[int], vocab_size: int, eos: frozenset[int]) -> Iterator[str]:
    if not tokens:
        yield "is empty: give its tokens"
    elif len(tokens) > MAX_MARKER_TOKENS:
        yield f"has {len(tokens)} tokens: give at most {MAX_MARKER_TOKENS}"
    elif not 0 <= min(tokens) <= max(tokens) < vocab_size:
        yield f"has a token id outside the vocabulary of {vocab_size}"
    elif not eos.isdisjoint(tokens):
        yield "has an end-of-sequence token, which would end the completion: leave it out"
