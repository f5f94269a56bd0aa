"""Objects of Anthropic's Messages API."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from typing_extensions import TypedDict

from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.objects.common import Count
from loragate.gateway.objects.inference.completion_head import TokenSums

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageText(TypedDict):
    """Text of the answer."""

    type: Literal["text"]
    text: str


class MessageThought(TypedDict):
    """The reasoning before the answer. It is not signed: send it back with its empty signature."""

    type: Literal["thinking"]
    thinking: str
    signature: Literal[""]


class MessageToolUse(TypedDict):
    """A call of a tool that the model requests. Send its result back as a `tool_result` with the same id."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


ContentBlock = MessageText | MessageThought | MessageToolUse


class MessageUsage(TypedDict):
    """The tokens of a message. `input_tokens` does not include those that were found in the prefix cache,
    `cache_read_input_tokens`."""

    input_tokens: Count
    cache_creation_input_tokens: Literal[0]
    cache_read_input_tokens: Count
    output_tokens: Count


class Message(TypedDict):
    """A message of the model. `stop_sequence` is the one that ended it."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageTokens(TypedDict):
    """The number of tokens of a prompt."""

    input_tokens: Count


class MessageErrorDetail(TypedDict):
    """The error; its message names the field at fault."""

    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "overloaded_error",
    ]
    message: str


class MessageError(TypedDict):
    """The shape of every error response of the Messages API."""

    type: Literal["error"]
    error: MessageErrorDetail
    request_id: str


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The part of a message that does not depend on its content. `model` is the name that the request gave."""

    model: str
    request: GenerationRequest
    id: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")

    def document(
        self,
        content: Sequence[ContentBlock],
        usage: MessageUsage,
        stop_reason: StopReason | None = None,
        stop_sequence: str | None = None,
    ) -> Message:
        """Return the message; without a `stop_reason` it is not finished."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(content),
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
        }

    def usage(self, sums: TokenSums) -> MessageUsage:
        """Return the usage."""
        return {
            "input_tokens": self.request.prompt_tokens - sums.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": sums.cached_tokens,
            "output_tokens": sums.tokens,
        }
