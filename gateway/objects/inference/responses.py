"""Response objects of OpenAI's Responses API."""

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import TokenSums, UnixTime
from loragate.gateway.objects.inference.logprobs import TokenLogprob
from loragate.gateway.schemas.inference.responses import ResponseRequest

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(TypedDict):
    """Text, with the logprobs of its tokens if the request asked for them."""

    type: Literal["output_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)]
    logprobs: list[TokenLogprob]


class OutputMessage(TypedDict):
    """A message of the model."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class FunctionCallItem(TypedDict):
    """A call of a function that the model requests. Send its result back under the same `call_id`."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: NotRequired[str]


class CustomCallItem(TypedDict):
    """A call of a custom tool that the model requests. Send its result back under the same `call_id`."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: NotRequired[str]


class ReasoningText(TypedDict):
    """What the model wrote before its answer."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(TypedDict):
    """The reasoning as a summary, for clients that ask for one. It is not shortened."""

    type: Literal["summary_text"]
    text: str


class ReasoningItem(TypedDict):
    """The reasoning of the model. Send it back before the items that follow it, so that the model sees it again."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: None


OutputItem = OutputMessage | FunctionCallItem | CustomCallItem | ReasoningItem


class InputDetails(TypedDict):
    """`cached_tokens`: input tokens that were found in the prefix cache and not computed again."""

    cached_tokens: Count
    cache_write_tokens: Count


class OutputDetails(TypedDict):
    """`reasoning_tokens`: output tokens that are reasoning before the answer."""

    reasoning_tokens: Count


class ResponseUsage(TypedDict):
    """The tokens of the request and of its response."""

    input_tokens: Count
    input_tokens_details: InputDetails
    output_tokens: Count
    output_tokens_details: OutputDetails
    total_tokens: Count


class ResponseFailure(TypedDict):
    """The reason why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class IncompleteDetails(TypedDict):
    """The reason why a response is incomplete."""

    reason: Literal["max_output_tokens"]


class ReasoningEffort(TypedDict):
    """The effort and the summary that the request asked for."""

    effort: str | None
    summary: str | None


class TextConfig(TypedDict):
    """The format that the text must have."""

    format: dict[str, Any]
    verbosity: Literal["medium"]


class ConversationId(TypedDict):
    """The conversation that the response read and added to."""

    id: str


class ResponseObject(TypedDict):
    """A response. `store` says whether it can be read again."""

    id: str
    object: Literal["response"]
    created_at: UnixTime
    completed_at: UnixTime | None
    status: ResponseStatus
    background: bool
    conversation: ConversationId | None
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: Count | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: ReasoningEffort
    store: bool
    temperature: float
    text: TextConfig
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: Count
    top_p: float
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The part of a response that does not depend on its output."""

    body: ResponseRequest
    request: GenerationRequest
    stored: bool = False
    id: str = field(default_factory=lambda: new_item_id("resp"))
    created: int = field(default_factory=lambda: int(time.time()))

    def document(
        self,
        status: ResponseStatus,
        output: Sequence[OutputItem] = (),
        usage: ResponseUsage | None = None,
        error: ResponseFailure | None = None,
    ) -> ResponseObject:
        """Return the response object. Parameters that the request left out have the values that were used."""
        body, sampling = self.body, self.request.sampling
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": bool(body.background),
            "conversation": None if body.conversation_id is None else {"id": body.conversation_id},
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": list(output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": self._reasoning,
            "store": self.stored,
            "temperature": _shown(body.temperature, sampling.temperature),
            "text": {"format": self._format, "verbosity": "medium"},
            "tool_choice": self._tool_choice,
            "tools": [_tool(tool.model_dump()) for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": _shown(body.top_p, sampling.top_p),
            "truncation": "disabled",
            "usage": usage,
            "user": body.user,
        }

    def usage(self, sums: TokenSums) -> ResponseUsage:
        """Return the usage."""
        input_tokens = self.request.prompt_tokens
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": sums.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": sums.tokens,
            "output_tokens_details": {"reasoning_tokens": sums.reasoning_tokens},
            "total_tokens": input_tokens + sums.tokens,
        }

    @property
    def _reasoning(self) -> ReasoningEffort:
        given = self.body.reasoning
        if given is None:
            return {"effort": None, "summary": None}
        return {"effort": given.effort, "summary": given.wanted_summary}

    @property
    def _format(self) -> dict[str, Any]:
        given = None if self.body.text is None else self.body.text.format
        return {"type": "text"} if given is None else given.model_dump(by_alias=True, exclude_none=True)

    @property
    def _tool_choice(self) -> Any:
        choice = self.body.tool_choice
        return choice or "auto" if choice is None or isinstance(choice, str) else choice.model_dump()


def new_item_id(prefix: str, response_id: str = "") -> str:
    """Return an id such as "msg_…". That of an item of a response begins with the response's."""
    own = _RESPONSE_ID.fullmatch(response_id)
    return f"{prefix}_{secrets.token_hex(24)}" if own is None else f"{prefix}_{own[1]}{secrets.token_hex(5)}"


def response_of_item(item_id: str) -> str | None:
    """Return the id of the response that an item's id was made for; None if it was made for none."""
    found = _ITEM_ID.fullmatch(item_id)
    return None if found is None else f"resp_{found[1]}"


_RESPONSE_ID = re.compile("resp_([0-9a-f]{48})")
_ITEM_ID = re.compile("[a-z]{2,4}_([0-9a-f]{48})[0-9a-f]{10}")


def _shown(given: float | None, used: float) -> float:
    """Return the value given or, if there is none, the one used, without the noise of its single precision."""
    return round(used, 6) if given is None else given


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in tool.items() if name != "namespace" or value is not None}
    return shown if tool["type"] == "custom" else {**shown, "strict": bool(tool["strict"])}
