"""The interface of a reasoning format."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from loragate.v1 import engine_pb2 as pb


class Divided(NamedTuple):
    """What a token adds to the reasoning and to the answer.

    `is_reasoning`: the token is part of the reasoning or of its marks, and counts as a reasoning token.
    """

    reasoning: str = ""
    answer: str = ""
    is_reasoning: bool = False


class ReasoningReader(Protocol):
    """Divides one completion. The result does not depend on how the text was divided into tokens."""

    def push(self, token_id: int, text: str) -> Divided:
        """Return what a token adds; `text` is what the detokenizer gave for it."""
        ...

    def finish(self, text: str) -> Divided:
        """Return what was held back, after the last token; `text` is what the detokenizer held back."""
        ...


class ReasoningFormat(Protocol):
    """The way one family of models writes reasoning, with the tokens of one tokenizer. It has no state."""

    def is_open(self, prompt: Sequence[int]) -> bool:
        """Return whether the prompt ends inside the reasoning, so that the completion continues it."""
        ...

    def reader(self, *, is_open: bool, calls: bool) -> ReasoningReader:
        """Return a reader for one completion. `calls`: tool calls stay in the answer as the model writes them."""
        ...

    def thinking(self, *, is_open: bool, max_tokens: int | None) -> pb.Thinking | None:
        """Return the bounded first segment of the completion for the engine; None if the tokenizer lacks the tokens."""
        ...

    @property
    def answer_headers(self) -> Sequence[str]:
        """What the model may write before an answer, without and with reasoning before it; empty: nothing."""
        ...
