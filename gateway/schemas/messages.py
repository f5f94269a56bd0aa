"""Chat messages: roles, and contents as text or as a list of text parts."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from loragate.gateway.schemas.body import Body

# What clients send back when they append an answer as they got it. Empty, these say nothing.
_EMPTY_ALLOWED = ("annotations", "audio", "function_call", "refusal", "tool_calls", "reasoning_content")


def _text_of(content: Any) -> Any:
    """Parts of type text are joined; any other part is refused."""
    if not isinstance(content, list):
        return content
    return "".join(_text_of_part(part) for part in content)


def _text_of_part(part: Any) -> str:
    if not isinstance(part, dict) or part.keys() - {"type", "text"} or not isinstance(part.get("text"), str):
        raise PydanticCustomError(
            "content_part", "only parts of the form {{'type': 'text', 'text': …}} are supported", {}
        )
    if part.get("type") != "text":
        raise PydanticCustomError("content_part", "only parts of type 'text' are supported", {})
    return str(part["text"])


class ChatMessage(Body):
    """One message. `developer` is OpenAI's newer name for `system`; chat templates know the older one."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text_of)]
    name: Annotated[str, StringConstraints(max_length=256)] | None = Field(default=None)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_fields(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        return {
            key: value for key, value in message.items() if key not in _EMPTY_ALLOWED or value not in (None, [], "")
        }

    def for_template(self) -> dict[str, str]:
        """As chat templates expect it."""
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": self.content, **named}
