"""The bodies of POST /v1/classify, /v1/score and /v1/rerank."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from loragate.gateway.schemas.inference.chat import Messages, check_messages, ending_of
from loragate.gateway.schemas.inference.embeddings import MAX_INPUTS
from loragate.gateway.schemas.inference.prompts import Prompt, Prompts
from loragate.gateway.schemas.inference.sampling import ModelName, Priority, User
from loragate.prompts.bodies import ClientBody, field_error
from loragate.prompts.chat_template import Ending

PromptFormat = Annotated[
    Literal["pair", "chat"],
    Field(
        description="`pair` (default): both texts as the tokenizer joins a pair, as cross-encoders are trained; "
        "`chat`: a question and its answer in the chat template, as reward models are."
    ),
]
UseActivation = Annotated[
    bool, Field(description="false: the logits themselves. Default: probabilities, by the adapter's problem type.")
]


def _as_texts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[
    list[_Text],
    Field(min_length=1, max_length=MAX_INPUTS),
    BeforeValidator(_as_texts, json_schema_input_type=str | list[_Text]),
]


class _Classified(ClientBody):
    model: ModelName
    use_activation: UseActivation | None = None
    user: User | None = None
    safety_identifier: User | None = None
    priority: Priority | None = None

    @property
    def sticky_key(self) -> str | None:
        """The key by which a version of an alias is chosen; None for a random choice."""
        return self.user or self.safety_identifier or None

    @property
    def activated(self) -> bool:
        """Whether logits are turned into probabilities."""
        return self.use_activation is not False


class ClassifyRequest(_Classified):
    """vLLM's request: an `input`, or the `messages` of a chat. `model` is an adapter with a head for labels."""

    input: Annotated[Prompts, Field(max_length=MAX_INPUTS)] | None = None
    messages: Messages | None = None
    add_generation_prompt: bool | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ClassifyRequest":
        if (self.input is None) == (self.messages is None):
            raise field_error("input", "give either 'input' or 'messages'")
        if self.messages is not None:
            check_messages(self.messages, self.ending)
        elif self.add_generation_prompt:
            raise field_error("add_generation_prompt", "it is only allowed with 'messages'")
        return self

    @property
    def inputs(self) -> list[Prompt]:
        """The texts, in order; none if there are messages."""
        return self.input or []

    @property
    def ending(self) -> Ending:
        """Where a chat ends: by default after its last message."""
        return ending_of(bool(self.add_generation_prompt), None)


class PairRequest(_Classified):
    """Pairs of texts, each of which gets one score."""

    prompt_format: PromptFormat | None = None

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The pairs, in order."""
        raise NotImplementedError

    @property
    def second_field(self) -> str:
        """The name of the field with the second texts."""
        raise NotImplementedError


class ScoreRequest(PairRequest):
    """vLLM's request: one text against one or more, or two lists of equal length. The newer names of the two fields are
    `queries` and `documents`."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ScoreRequest":
        older, newer = (self.text_1, self.text_2), (self.queries, self.documents)
        if (None in older) == (None in newer) or not (older == (None, None) or newer == (None, None)):
            raise field_error("text_1", "give 'text_1' and 'text_2', or 'queries' and 'documents'")
        first, second = self._sides
        if len(first) not in (1, len(second)):
            raise field_error(self.second_field, "there must be as many as first texts, or one first text")
        return self

    @property
    def _sides(self) -> tuple[list[str], list[str]]:
        return (self.text_1 or self.queries or [], self.text_2 or self.documents or [])

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        first, second = self._sides
        return list(zip(first * (len(second) if len(first) == 1 else 1), second, strict=True))

    @property
    def second_field(self) -> str:
        return "text_2" if self.text_2 is not None else "documents"


class Document(ClientBody):
    """A document in the form of Cohere's first version."""

    text: _Text


class RerankRequest(PairRequest):
    """The request that vLLM, Jina and Cohere have in common."""

    query: _Text
    documents: Annotated[list[_Text | Document], Field(min_length=1, max_length=MAX_INPUTS)]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: (
        Annotated[bool, Field(description="Default: true in /v1/rerank, as Jina; false in /v2/rerank, as Cohere.")]
        | None
    ) = None

    @property
    def texts(self) -> list[str]:
        """The documents' texts, in order."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        return [(self.query, text) for text in self.texts]

    @property
    def second_field(self) -> str:
        return "documents"
