"""Items of the `input` of a response: messages, function calls and their results."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag

from loragate.prompts.tools import FunctionName
from loragate.prompts.validation import Body

Status = Literal["in_progress", "completed", "incomplete"]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ItemId = Annotated[str, StringConstraints(max_length=256)]
NothingYet = Annotated[list[Any], Field(max_length=0)]


class TextContent(Body):
    """A part of a message, as in requests or in responses."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: NothingYet | None = None
    logprobs: list[Any] | None = None  # part of a response that is sent back; without effect


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


Text = Annotated[list[TextContent], BeforeValidator(_as_parts, json_schema_input_type=str | list[TextContent])]


def text_of(parts: list[TextContent]) -> str:
    """Return the text of all parts."""
    return "".join(part.text for part in parts)


class MessageItem(Body):
    """A message. `developer` is the newer name of the role `system`."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Text
    id: ItemId | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None  # without effect


class FunctionCallInput(Body):
    """A function call that the model made."""

    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: str
    id: ItemId | None = None
    status: Status | None = None


class FunctionOutputItem(Body):
    """The result of a function call."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: Text
    id: ItemId | None = None
    status: Status | None = None


def _kind(item: Any) -> str | None:
    """Return the item's type; a message may omit it."""
    return item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallInput, Tag("function_call")]
    | Annotated[FunctionOutputItem, Tag("function_call_output")],
    Discriminator(_kind),
]
