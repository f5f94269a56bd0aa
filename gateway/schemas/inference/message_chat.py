"""Conversion of a request for a message into the equivalent chat request."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loragate.gateway.errors import ContextLengthExceeded, InvalidRequest
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.message_blocks import (
    Block,
    InputMessage,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    text_of,
)
from loragate.gateway.schemas.inference.messages import (
    MessageRequest,
    MessageTokensRequest,
    MessageTool,
    MessageToolChoice,
    turns_of,
)
from loragate.gateway.schemas.validation import validated
from loragate.prompts.json_text import dump_json

# Field of the chat request → the field that the caller sent.
_NAMES = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
    "user": "metadata.user_id",
    "messages": "messages",  # without its index: they do not correspond to messages of the chat one to one
}
# Claude Code begins the system prompt with a line about its version that differs in each request, and which no prefix
# of a prompt could be found in the cache behind.
_BILLING = "x-anthropic-billing-header:"
_DISABLED = {"type": "disabled"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: MessageTokensRequest) -> ChatRequest:
    """Return the chat request that is equivalent to `body`. Raise InvalidRequest, which names the fields of `body`."""
    chat = _prompt(body)
    if isinstance(body, MessageRequest):
        chat |= _sampling(body)
    with renamed_fields():
        return validated(ChatRequest, chat)


@contextmanager
def renamed_fields() -> Iterator[None]:
    """Make errors about the chat request name the fields of the request for a message."""
    try:
        yield
    except ContextLengthExceeded as error:
        raise InvalidRequest(_too_long(error), param=error.param, code=error.code) from None
    except InvalidRequest as error:
        param = error.param and _renamed(error.param)
        if param == error.param:
            raise
        message = error.message.replace(f"'{error.param}'", f"'{param}'")
        raise InvalidRequest(message, param=param, code=error.code) from None


def _renamed(param: str) -> str:
    head = param.partition(".")[0]
    if head == "tools":
        return param.replace(".function.parameters", ".input_schema").replace(".function", "")
    return _NAMES.get(head, param)


def _too_long(error: ContextLengthExceeded) -> str:
    """Return Anthropic's words, by which Claude Code knows that it must shorten the conversation or `max_tokens`."""
    if error.completion_tokens is None:
        return f"prompt is too long: {error.prompt_tokens} tokens > {error.limit} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {error.prompt_tokens} + {error.completion_tokens} > "
        f"{error.limit}, decrease input length or `max_tokens` and try again"
    )


def _prompt(body: MessageTokensRequest) -> dict[str, Any]:
    """Return the fields on which the prompt depends."""
    config, choice, thinking = body.output_config, body.tool_choice, body.thinking
    last = body.messages[-1]
    return {
        "model": body.model,
        "messages": _messages(body),
        "continue_final_message": last.role == "assistant",
        "tools": [_tool(tool) for tool in body.tools] if body.tools else None,
        "tool_choice": None if choice is None else _choice(choice),
        "parallel_tool_calls": choice is None or not choice.disable_parallel_tool_use,
        "thinking": _DISABLED if thinking is None else thinking.model_dump(exclude={"display"}, exclude_none=True),
        "include_reasoning": body.shows_thinking,
        "reasoning_effort": None if config is None else config.effort,
    }


def _sampling(body: MessageRequest) -> dict[str, Any]:
    """Return the fields on which the answer depends, in addition to its prompt."""
    return {
        "max_completion_tokens": body.max_tokens,
        "stop": body.stop_sequences,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "response_format": _format(body),
        "user": None if body.metadata is None else body.metadata.user_id,
    }


def _format(body: MessageRequest) -> dict[str, Any] | None:
    given = None if body.output_config is None else body.output_config.format
    if given is None:
        return None
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": given.schema_}}


def _messages(body: MessageTokensRequest) -> list[dict[str, Any]]:
    messages = []
    system = text_of([block for block in body.system or () if not block.text.startswith(_BILLING)])
    if system:
        messages.append({"role": "system", "content": system})
    for turn in turns_of(body.messages):
        messages += _turn(turn)
    return messages


def _turn(turn: Sequence[InputMessage]) -> list[dict[str, Any]]:
    blocks = [block for message in turn for block in message.content]
    match turn[0].role:
        case "user":
            return _user(blocks)
        case "assistant":
            return [_assistant(blocks)]
        case role:
            return [{"role": role, "content": text_of(blocks)}]


def _user(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the results of tools, which must follow their calls directly, and then the text."""
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": block.tool_use_id, "content": block.text}
        for block in blocks
        if isinstance(block, ToolResultBlock)
    ]
    text = text_of(blocks)
    return [*messages, {"role": "user", "content": text}] if text or not messages else messages


def _assistant(blocks: Sequence[Block]) -> dict[str, Any]:
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": dump_json(block.input)}}
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    text = text_of(blocks)
    thought = "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    return message | ({"tool_calls": calls} if calls else {}) | ({"reasoning": thought} if thought else {})


def _tool(tool: MessageTool) -> dict[str, Any]:
    function = {"name": tool.name, "parameters": tool.input_schema}
    optional = {"description": tool.description, "strict": tool.strict}
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "function", "function": function | given}


def _choice(choice: MessageToolChoice) -> Any:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]
