"""The bodies of POST /v1/messages and /v1/messages/count_tokens, which are Anthropic's."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from loragate.gateway.schemas.inference.chat import MAX_MESSAGES
from loragate.gateway.schemas.inference.message_blocks import (
    InputMessage,
    Texts,
    ToolResultBlock,
    ToolUseBlock,
)
from loragate.gateway.schemas.inference.reasoning import Effort, Thinking
from loragate.gateway.schemas.inference.sampling import ModelName, StopStrings, User
from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error
from loragate.prompts.json_schema import JsonSchema
from loragate.prompts.tools import MAX_TOOLS, ArgumentsSchema, FunctionName

_HOSTED = {"web_search": "WebSearch", "web_fetch": "WebFetch"}  # with the names of Claude Code's tools that use them


class MessageTool(ClientBody):
    """A tool that the client runs."""

    extras = ExtraFields(
        ignored=("allowed_callers", "cache_control", "defer_loading", "eager_input_streaming", "input_examples")
    )

    name: FunctionName
    input_schema: ArgumentsSchema
    description: Annotated[str, StringConstraints(max_length=1 << 16)] | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None


def _custom_tools(tools: Any) -> Any:
    """Return the tools. Raise an error for those that Anthropic defines."""
    for position, tool in enumerate(tools if isinstance(tools, list) else ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind != "custom":
            raise field_error(f"{position}.type", _refusal(kind))
    return tools


def _refusal(kind: str) -> str:
    for hosted, name in _HOSTED.items():
        if kind.startswith(hosted):
            return f"this server runs no tools: leave '{hosted}' out; in Claude Code add '{name}' to `permissions.deny`"
    return "tools that Anthropic defines are not supported: send a tool of type 'custom' with its 'input_schema'"


class MessageToolChoice(ClientBody):
    """Whether the model may or must call tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def _names_a_tool(self) -> "MessageToolChoice":
        if (self.name is not None) != (self.type == "tool"):
            raise field_error("name", "it must be given exactly when the type is 'tool'")
        return self


class MessageThinking(Thinking):
    """The switch and the budget of reasoning. With `display: "omitted"` the model reasons, but its reasoning is not
    returned."""

    extras = ExtraFields(ignored=("block_binding",))  # to a signature, which is not checked

    display: Literal["summarized", "omitted"] | None = None


class MessageFormat(ClientBody):
    """A JSON schema that the answer must match."""

    type: Literal["json_schema"]
    schema_: JsonSchema = Field(alias="schema")


class OutputConfig(ClientBody):
    """The effort, which only a chat template with a variable for it uses, and the format of the answer."""

    extras = ExtraFields(refused={"task_budget": Refused("the model has no budget for tasks: leave it out")})

    effort: Effort | None = None
    format: MessageFormat | None = None


class MessageMetadata(ClientBody):
    """The end user of the request."""

    user_id: User | None = None


class MessageTokensRequest(ClientBody):
    """Anthropic's request for the number of a prompt's tokens."""

    extras = ExtraFields(
        ignored=(
            "betas",
            "billing_policy",
            "cache_control",
            "context_management",
            "diagnostics",
            "fallback_credit_token",
            "fallbacks",  # for models that decline
            "inference_geo",
            "service_tier",
            "speed",
            "user_profile_id",
            "workspace_id",
        ),
        refused={
            "compaction": Refused("this server summarizes no conversations: leave it out"),
            "container": Refused("this server runs no code: leave it out"),
            "mcp_servers": Refused("this server connects to no MCP servers: send their tools as 'tools'", ([],)),
            "thread": Refused("messages are not stored here: send the whole conversation as 'messages'"),
        },
    )

    model: ModelName
    messages: Annotated[list[InputMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    system: Texts | None = None
    tools: (
        Annotated[list[MessageTool], Field(fail_fast=True, max_length=MAX_TOOLS), BeforeValidator(_custom_tools)] | None
    ) = None
    tool_choice: MessageToolChoice | None = None
    thinking: MessageThinking | None = None
    output_config: OutputConfig | None = None

    @model_validator(mode="after")
    def _results_follow_their_calls(self) -> "MessageTokensRequest":
        _check_results(self.messages)
        return self

    @property
    def shows_thinking(self) -> bool:
        """Whether the answer contains the reasoning: only if the request asks for it, as in Anthropic's API."""
        given = self.thinking
        return given is not None and given.type != "disabled" and given.display != "omitted"


class MessageRequest(MessageTokensRequest):
    """Anthropic's request for a message. Without `thinking` the model does not reason, if it can do without."""

    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)]
    stop_sequences: StopStrings | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    stream: bool | None = None
    metadata: MessageMetadata | None = None


def turns_of(messages: Sequence[InputMessage]) -> list[list[InputMessage]]:
    """Return the messages in groups: those of one role that follow each other are one turn."""
    turns: list[list[InputMessage]] = []
    for message in messages:
        if turns and turns[-1][0].role == message.role:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def _check_results(messages: Sequence[InputMessage]) -> None:
    """Check that the calls of a turn have their results in the next one, and that there are no others. Raise a field
    error."""
    calls: set[str] = set()
    end = 0
    for turn in turns_of(messages):
        start, end = end, end + len(turn)
        results = _results(turn, start, calls)
        if results < calls:
            reason = "each 'tool_use' needs a 'tool_result' with its id in the next message"
            raise field_error(f"messages.{start - 1}.content", reason)
        calls = _calls(turn, start)
    if calls:
        raise field_error(f"messages.{end - 1}.content", "each 'tool_use' needs a 'tool_result' in the next message")


def _results(turn: Sequence[InputMessage], start: int, calls: set[str]) -> set[str]:
    results: set[str] = set()
    for index, message in enumerate(turn, start):
        for position, block in enumerate(message.content):
            if not isinstance(block, ToolResultBlock):
                continue
            if block.tool_use_id not in calls - results:
                reason = "it does not match a 'tool_use' of the preceding message that has no result yet"
                raise field_error(f"messages.{index}.content.{position}.tool_use_id", reason)
            results.add(block.tool_use_id)
    return results


def _calls(turn: Sequence[InputMessage], start: int) -> set[str]:
    calls: set[str] = set()
    for index, message in enumerate(turn, start):
        for position, block in enumerate(message.content):
            if not isinstance(block, ToolUseBlock):
                continue
            if block.id in calls:
                raise field_error(f"messages.{index}.content.{position}.id", "two calls have the same id")
            calls.add(block.id)
    return calls
