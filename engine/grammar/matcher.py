"""The state of one completion in what restricts it. Grammars are matched by llguidance: Earley parsing over a lexer of
regex derivatives."""

from typing import Any, Protocol

from loragate.engine.grammar.allowed_tokens import AllowedTokens

UNWRITABLE = "the model's vocabulary has no tokens for a text that matches"


class GrammarFailed(Exception):
    """An accepted grammar proved too complex while it was matched; the message is the library's."""


class Matcher(Protocol):
    """The state of one sequence, advanced once for each token and never back."""

    def fork(self) -> "Matcher":
        """Return an independent matcher in the same state."""
        ...

    def advance(self, token: int) -> None:
        """Accept a token. Raise GrammarFailed."""
        ...

    @property
    def allowed(self) -> AllowedTokens:
        """The tokens that may come next."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the text matches and cannot be continued."""
        ...


class GrammarMatcher:
    """The state of a sequence in its grammar. Owns an llguidance matcher."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.allowed = AllowedTokens(grammar=inner)

    def fork(self) -> "GrammarMatcher":
        """Return an independent matcher in the same state."""
        return GrammarMatcher(self._inner.deep_copy())

    def advance(self, token: int) -> None:
        """Accept a token. Raise GrammarFailed, also for errors from the computation of the mask."""
        if self._inner.is_error() or not self._inner.consume_token(token):
            raise GrammarFailed(reason(self._inner.get_error()))

    @property
    def complete(self) -> bool:
        """Whether the text matches and cannot be continued."""
        return bool(self._inner.is_stopped())


def reason(message: str) -> str:
    """Return the library's message without the stack trace."""
    if UNWRITABLE in message or message.startswith("NoExtension"):
        return UNWRITABLE
    return message.split("\n<", 1)[0].strip()
