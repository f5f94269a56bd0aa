"""Answers of the inference routes, as in OpenAI's API."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count

UnixTime = Annotated[int, Field(ge=0, description="Unix time in seconds.")]
Vector = Annotated[
    list[float] | str,
    Field(description="Numbers, or with `encoding_format` base64 their float32 bytes, little-endian."),
]
FinishReason = Literal["stop", "length", "tool_calls"]


class PromptDetails(TypedDict):
    """`cached_tokens` of the prompt needed no computing."""

    cached_tokens: Count


class Usage(TypedDict):
    """Tokens, all choices together. Each prompt counts once."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptDetails


class AnswerHead(TypedDict):
    """`system_fingerprint` is that of the base model's weights."""

    id: str
    created: UnixTime
    model: Annotated[str, Field(description="As the request named it.")]
    system_fingerprint: str


class AlternativeToken(TypedDict):
    """A token that might have been."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(AlternativeToken):
    """A token, and the likeliest in its place."""

    top_logprobs: list[AlternativeToken]


class ChatLogprobs(TypedDict):
    """Of the tokens that the text came from."""

    content: list[TokenLogprob]
    refusal: None


class FunctionCall(TypedDict):
    """`arguments` is JSON as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """The model asks for a function to be called."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(TypedDict):
    """`content` is null where there are only calls."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(TypedDict):
    """One of `n`."""

    index: Count
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(AnswerHead):
    """The whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(TypedDict):
    """The name comes first, the arguments in pieces."""

    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """The first of a call has its id, its type and its name."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class MessageDelta(TypedDict):
    """What a chunk adds to the message; nothing in a choice's last one."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    tool_calls: NotRequired[list[ToolCallDelta]]


class ChunkChoice(TypedDict):
    """`finish_reason` comes with a choice's last chunk."""

    index: Count
    delta: MessageDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletionChunk(AnswerHead):
    """An event of a stream. With `stream_options.include_usage` the last one has the usage and no choices.

    `[DONE]` follows. A failure after the first event comes as the error envelope, and no `[DONE]` follows it.
    """

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: NotRequired[Usage | None]


class CompletionLogprobs(TypedDict):
    """Four lists of the same length, one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[Count]


class TextChoice(TypedDict):
    """One of `n` for each prompt. In a stream `finish_reason` is null but for a choice's last event."""

    text: str
    index: Count
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(AnswerHead):
    """The whole answer, or an event of a stream, where only the last may have the usage.

    `[DONE]` follows. A failure after the first event comes as the error envelope, and no `[DONE]` follows it.
    """

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: NotRequired[Usage | None]


class Embedding(TypedDict):
    """Of input number `index`."""

    object: Literal["embedding"]
    index: Count
    embedding: Vector


class EmbeddingUsage(TypedDict):
    """Tokens of all inputs."""

    prompt_tokens: Count
    total_tokens: Count


class EmbeddingList(TypedDict):
    """In the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class Model(TypedDict):
    """`parent` is the base model's id; null for the base model itself. `owned_by` is `loragate` for that, the tenant's
    id for what a fine-tuning job of it has made, and `tenant` for its other adapters."""

    id: str
    object: Literal["model"]
    created: UnixTime
    owned_by: str
    parent: str | None


class DeletedModel(TypedDict):
    """It is gone."""

    id: str
    object: Literal["model"]
    deleted: Literal[True]


class ModelList(TypedDict):
    """All that the key may use, in one page."""

    object: Literal["list"]
    data: list[Model]
