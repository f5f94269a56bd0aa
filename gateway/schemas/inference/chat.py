"""The body of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.reasoning import Budget, Effort, Thinking, VariableName, VariableValue
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, SamplingFields
from loragate.gateway.schemas.inference.tools import ToolFields
from loragate.prompts.bodies import ClientBody, field_error
from loragate.prompts.chat_template import Ending
from loragate.prompts.messages import ChatMessage, check_tool_results
from loragate.prompts.tools import CalledFunction

MAX_MESSAGES = 4096


def _with_tool_calls(messages: Any) -> Any:
    """Return the messages with `tool_calls` and role `tool` in place of OpenAI's older `function_call` and role
    `function`, which have no ids."""
    if not isinstance(messages, list) or len(messages) > MAX_MESSAGES:
        return messages
    called: str | None = None
    newer = []
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            return messages
        if message.get("role") == "function":
            message = _tool_result(message, position, called)
            called = None
        elif message.get("function_call"):
            function = _called(message, position)
            called = function["name"]
            call = {"id": f"call_{position}", "type": "function", "function": function}
            kept = {name: value for name, value in message.items() if name != "function_call"}
            message = {**kept, "tool_calls": [call]}
        newer.append(message)
    return newer


def _called(message: dict[str, Any], position: int) -> dict[str, Any]:
    if message.get("tool_calls"):
        raise field_error(f"{position}.function_call", "it cannot be combined with 'tool_calls'")
    try:
        return CalledFunction.model_validate(message["function_call"]).model_dump()
    except ValidationError:
        reason = "it must have the function's 'name' and its 'arguments', both as strings"
        raise field_error(f"{position}.function_call", reason) from None


def _tool_result(message: dict[str, Any], position: int, called: str | None) -> dict[str, Any]:
    if called is None or message.get("name") != called:
        reason = "a message of role 'function' must directly follow the 'function_call' of the function that it names"
        raise field_error(f"{position}.name", reason)
    return {**message, "role": "tool", "tool_call_id": f"call_{position - 1}"}


Messages = Annotated[
    list[ChatMessage],
    Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES),
    BeforeValidator(_with_tool_calls),
]


def ending_of(add_generation_prompt: bool | None, continue_final_message: bool | None) -> Ending:
    """Return where a prompt with these fields ends. Raise a field error if they contradict each other."""
    if continue_final_message:
        if add_generation_prompt:
            reason = "it cannot be combined with 'add_generation_prompt': send false for one of them"
            raise field_error("continue_final_message", reason)
        return "unfinished"
    return "finished" if add_generation_prompt is False else "prompt"


def check_messages(messages: Sequence[ChatMessage], ending: Ending) -> None:
    """Check that calls have results, and that a message that the model is to continue has text. Raise a field
    error."""
    check_tool_results(messages)
    if ending == "unfinished" and (messages[-1].content is None or messages[-1].tool_calls):
        raise field_error("continue_final_message", "the last message must have a content, and no calls")


class ReasoningFields(ClientBody):
    """A model without reasoning ignores them: nothing about its answers would change."""

    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    enable_thinking: bool | None = None
    thinking_token_budget: Budget | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: Annotated[dict[VariableName, VariableValue], Field(max_length=16)] | None = None

    @model_validator(mode="after")
    def _reasoning_agrees(self) -> "ReasoningFields":
        given = self.thinking is not None and self.thinking.budget_tokens is not None
        if given and self.thinking_token_budget is not None:
            raise field_error(
                "thinking", "'budget_tokens' is the same as 'thinking_token_budget': give only one of them"
            )
        return self

    @property
    def thinking_enabled(self) -> bool | None:
        """Whether the model is to reason; None if the request leaves it to the model."""
        if self.enable_thinking is not None:
            return self.enable_thinking
        if self.thinking is not None and self.thinking.type != "adaptive":
            return self.thinking.type == "enabled"
        return None if self.reasoning_effort is None else self.reasoning_effort != "none"

    @property
    def thinking_budget(self) -> int | None:
        """The maximum number of tokens of the reasoning; None for any number."""
        if self.thinking_token_budget is not None:
            return self.thinking_token_budget
        return None if self.thinking is None else self.thinking.budget_tokens

    @property
    def sets_variables(self) -> bool:
        """Whether the request sets variables of the chat template."""
        return any(
            given is not None for given in (self.reasoning_effort, self.thinking_enabled, self.chat_template_kwargs)
        )


class ChatRequest(SamplingFields, ToolFields, OutputFields, ReasoningFields):
    """OpenAI's chat request. `max_completion_tokens` is the newer name of `max_tokens`."""

    messages: Messages
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "it is only allowed when 'logprobs' is true")
        if None not in (self.max_tokens, self.max_completion_tokens):
            raise field_error("max_tokens", "it is the same as 'max_completion_tokens': give only one of them")
        check_messages(self.messages, self.ending)
        return self

    @property
    def ending(self) -> Ending:
        """Where the prompt ends."""
        return ending_of(self.add_generation_prompt, self.continue_final_message)

    @property
    def token_limit(self) -> int | None:
        """The maximum number of tokens of one completion; None if the request omits it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """The number of alternatives for each token's logprob; None if no logprobs are requested."""
        return (self.top_logprobs or 0) if self.logprobs else None
