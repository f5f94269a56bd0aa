"""Items of the `input` of a response: messages, function calls and their results, and reasoning."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag

from loragate.prompts.bodies import ClientBody, ExtraFields, field_error
from loragate.prompts.tools import FunctionName

Status = Literal["in_progress", "completed", "incomplete"]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ItemId = Annotated[str, StringConstraints(max_length=256)]


class TextContent(ClientBody):
    """A part of a message, as in requests or in responses."""

    extras = ExtraFields(ignored=("annotations", "logprobs", "parsed", "prompt_cache_breakpoint"))

    type: Literal["input_text", "output_text", "text"]
    text: str


class RefusalContent(ClientBody):
    """A refusal of the model that is sent back."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """The words of the refusal."""
        return self.refusal


def _only_text(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("input_image", "input_file", "input_audio"):
        raise field_error("type", "this server reads text only: send parts of type 'input_text'")
    return part


Content = Annotated[
    Annotated[TextContent | RefusalContent, Field(discriminator="type")],
    BeforeValidator(_only_text),
]


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


Text = Annotated[list[Content], BeforeValidator(_as_parts, json_schema_input_type=str | list[Content])]


def text_of(parts: Sequence[TextContent | RefusalContent]) -> str:
    """Return the text of all parts."""
    return "".join(part.text for part in parts)


class MessageItem(ClientBody):
    """A message. `developer` is the newer name of the role `system`."""

    extras = ExtraFields(ignored=("phase",))

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Text
    id: ItemId | None = None
    status: Status | None = None


class _CallInput(ClientBody):
    extras = ExtraFields(ignored=("async", "caller", "parsed_arguments"))  # OpenAI's helpers add the last

    call_id: CallId
    name: FunctionName
    id: ItemId | None = None
    status: Status | None = None
    namespace: ItemId | None = None


class FunctionCallInput(_CallInput):
    """A function call that the model made."""

    type: Literal["function_call"]
    arguments: str


class CustomCallInput(_CallInput):
    """A call of a custom tool that the model made."""

    type: Literal["custom_tool_call"]
    input: str


class FunctionOutputItem(ClientBody):
    """The result of a call of a function or a custom tool."""

    extras = ExtraFields(ignored=("caller", "name", "namespace"))

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: CallId
    output: Text
    id: ItemId | None = None
    status: Status | None = None


class ReasoningPart(ClientBody):
    """A part of the reasoning, or of its summary."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningInput(ClientBody):
    """The reasoning of an earlier response. It belongs to the message or call that follows it."""

    extras = ExtraFields(ignored=("encrypted_content",))  # this server never sends any

    type: Literal["reasoning"]
    summary: list[ReasoningPart] | None = None
    content: list[ReasoningPart] | None = None
    id: ItemId | None = None
    status: Status | None = None

    @property
    def text(self) -> str:
        """The reasoning; if there is none, its summary."""
        return "".join(part.text for part in self.content or self.summary or ())


class ItemReference(ClientBody):
    """A stored item, which is read in place of the reference."""

    type: Literal["item_reference"] | None = "item_reference"
    id: ItemId


def _kind(item: Any) -> str | None:
    """Return the item's type; a message may omit it, and a reference that has nothing but its id."""
    if isinstance(item, dict) and item.keys() <= {"id", "type"} and item.get("type") is None and "id" in item:
        return "item_reference"
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return "message" if kind is None else _SAME_SHAPE.get(kind, kind)


_SAME_SHAPE = {"custom_tool_call_output": "function_call_output"}
_TYPES = (
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)
NOT_STORED = "items are not stored here: send store=false, or the item itself"


def _check_type(item: Any) -> Any:
    """Reject an item of another type with a message of ours: pydantic's would list the types of all items."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind is not None and kind not in (*_TYPES, "item_reference"):
        reason = "items of this type are not supported: send messages, calls of functions and custom tools, and results"
        raise field_error("type", reason)
    return item


def _no_reference(item: Any) -> Any:
    if isinstance(item, dict) and _kind(item) == "item_reference":
        raise field_error("type", "send the item itself")
    return _check_type(item)


_Item = (
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallInput, Tag("function_call")]
    | Annotated[CustomCallInput, Tag("custom_tool_call")]
    | Annotated[FunctionOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningInput, Tag("reasoning")]
)
InputItem = Annotated[_Item, Discriminator(_kind), BeforeValidator(_no_reference)]
ItemOrReference = Annotated[
    _Item | Annotated[ItemReference, Tag("item_reference")], Discriminator(_kind), BeforeValidator(_check_type)
]
