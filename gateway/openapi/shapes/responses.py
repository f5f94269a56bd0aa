"""Answers of /v1/responses, as in OpenAI's API."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.openapi.shapes.common import Count
from loragate.gateway.openapi.shapes.inference import TokenLogprob, UnixTime

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    """Text, with the logprobs of its tokens where they were asked for."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[TokenLogprob]


class OutputMessage(TypedDict):
    """The model says something."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class OutputCall(TypedDict):
    """The model asks for a function to be called; what came of it is sent back under the same `call_id`."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class InputDetails(TypedDict):
    """`cached_tokens` needed no computing."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(TypedDict):
    """There is no hidden reasoning."""

    reasoning_tokens: Count


class ResponseUsage(TypedDict):
    """Tokens."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class ResponseFailure(TypedDict):
    """Why a response broke off."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class IncompleteDetails(TypedDict):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ReasoningEffort(TypedDict):
    """There is none."""

    effort: None
    summary: None


class TextConfig(TypedDict):
    """What the text has to be."""

    format: dict[str, Any]
    verbosity: Literal["medium"]


class ResponseObject(TypedDict):
    """A response. It is not kept: `store` is always false."""

    id: str
    object: Literal["response"]
    created_at: UnixTime
    completed_at: UnixTime | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: Count | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage | OutputCall]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: ReasoningEffort
    store: Literal[False]
    temperature: float
    text: TextConfig
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: Count
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


class BriefAlternative(TypedDict):
    """A token that might have been."""

    token: str
    logprob: float


class BriefLogprob(BriefAlternative):
    """A token, and the likeliest in its place."""

    top_logprobs: list[BriefAlternative]


class ResponseEvent(TypedDict):
    """An event: `type` says which, `sequence_number` its place, the others what has come.

    The last is `response.completed`, `response.incomplete` or `response.failed`; no `[DONE]` follows.
    """

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: Count
    response: NotRequired[ResponseObject]
    output_index: NotRequired[Count]
    item: NotRequired[OutputMessage | OutputCall]
    item_id: NotRequired[str]
    content_index: NotRequired[Count]
    part: NotRequired[OutputText]
    delta: NotRequired[str]
    text: NotRequired[str]
    arguments: NotRequired[str]
    logprobs: NotRequired[list[BriefLogprob]]
