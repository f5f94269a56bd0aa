"""Blocks of the messages of POST /v1/messages: text, reasoning, calls of tools and their results."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error
from loragate.prompts.tools import FunctionName

_SEPARATOR = "\n\n"  # blocks are paragraphs: clients put instructions and questions into blocks of their own
ToolUseId = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class _Block(ClientBody):
    extras = ExtraFields(ignored=("cache_control", "caller", "toolset_name"))


class TextBlock(_Block):
    """Text."""

    extras = ExtraFields(ignored=("cache_control", "citations"))

    type: Literal["text"]
    text: str


class ThinkingBlock(_Block):
    """The reasoning of an earlier answer. Its signature is not checked: this server sends an empty one."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(_Block):
    """Reasoning that only Anthropic can read. The model does not see it."""

    type: Literal["redacted_thinking"]
    data: str | None = None


class ToolUseBlock(_Block):
    """A call of a tool that the model made."""

    type: Literal["tool_use"]
    id: ToolUseId
    name: FunctionName
    input: dict[str, Any]


def _only_text(block: Any) -> Any:
    return _checked_type(block, ("text",))


def _checked_type(block: Any, supported: Sequence[str]) -> Any:
    """Reject a block of another type with a message of ours: pydantic's would list the types of all blocks."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in ("image", "document"):
        raise field_error("type", f"this server reads text only: send the {kind} as a block of type 'text'")
    if isinstance(kind, str) and kind not in supported:
        types = " and ".join(f"'{each}'" for each in supported)
        raise field_error("type", f"blocks of this type are not supported here: send blocks of type {types}")
    return block


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


OnlyText = Annotated[TextBlock, BeforeValidator(_only_text)]
Texts = Annotated[list[OnlyText], BeforeValidator(_as_blocks, json_schema_input_type=str | list[OnlyText])]


class ToolResultBlock(_Block):
    """The result of a call. The result of a call that failed begins with `Error:` in the prompt."""

    type: Literal["tool_result"]
    tool_use_id: ToolUseId
    content: Texts | None = None
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """The result as the model reads it."""
        text = text_of(self.content or ())
        return f"Error: {text}" if self.is_error else text


_ROLES = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
    "system": ("text",),
}
_TYPES = tuple(dict.fromkeys(kind for kinds in _ROLES.values() for kind in kinds))


def _supported(block: Any) -> Any:
    return _checked_type(block, _TYPES)


Block = Annotated[
    Annotated[
        TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
    ],
    BeforeValidator(_supported),
]


class InputMessage(ClientBody):
    """A message. Messages of one role that follow each other are one turn."""

    extras = ExtraFields(
        refused={
            "clear_at": Refused("every message stays: leave it out, or send 'never'", ("never",)),
            "output_config": Refused("it holds for the whole request: send it beside 'messages'"),
        }
    )

    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], BeforeValidator(_as_blocks, json_schema_input_type=str | list[Block])]

    @model_validator(mode="after")
    def _has_blocks_of_its_role(self) -> "InputMessage":
        for position, block in enumerate(self.content):
            if block.type not in _ROLES[self.role]:
                reason = f"a message of role '{self.role}' cannot have blocks of type '{block.type}'"
                raise field_error(f"content.{position}.type", reason)
        return self


def text_of(content: Sequence[Block]) -> str:
    """Return the texts of a content, each a paragraph."""
    return _SEPARATOR.join(block.text for block in content if isinstance(block, TextBlock))
