"""Tool definitions, and the tool calls of an assistant message."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, ExtraFields, field_error
from loragate.prompts.json_schema import JsonSchema

MAX_TOOLS = 128
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def _require_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise PydanticCustomError("schema", "the schema must be of type 'object'", {})
    return schema


Description = Annotated[str, StringConstraints(max_length=1 << 16)]
FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
ArgumentsSchema = Annotated[JsonSchema, AfterValidator(_require_object)]


class FunctionDefinition(ClientBody):
    """The name, purpose and parameters of a function; without `parameters` it takes no arguments."""

    name: FunctionName
    description: Description | None = None
    parameters: ArgumentsSchema | None = None
    strict: bool | None = None

    @property
    def arguments_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, an object."""
        return self.parameters or _NO_ARGUMENTS


class Tool(ClientBody):
    """One entry of `tools`."""

    extras = ExtraFields(ignored=("cache_control",))

    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        """Return the tool in the form that chat templates expect."""
        function = self.function
        described = {} if function.description is None else {"description": function.description}
        return {
            "type": "function",
            "function": {"name": function.name, **described, "parameters": function.arguments_schema},
        }


class CalledFunction(ClientBody):
    """The called function and its arguments as the model wrote them: usually, but not necessarily, valid JSON."""

    extras = ExtraFields(ignored=("parsed_arguments",))  # OpenAI's helpers add it

    name: FunctionName
    arguments: str


class MessageToolCall(ClientBody):
    """One entry of an assistant message's `tool_calls`."""

    extras = ExtraFields(ignored=("index", "cache_control"))  # calls that were put together from a stream have an index

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    type: Literal["function"]
    function: CalledFunction


def tool_names(tools: Sequence[Tool], path: Callable[[int], str] = "tools.{}.function.name".format) -> set[str]:
    """Return the names of the tools. Raise an error of the request's field for a repeated name; `path` returns where
    the name at a position stands."""
    names: set[str] = set()
    for position, tool in enumerate(tools):
        if tool.function.name in names:
            raise field_error(path(position), "another tool has the same name")
        names.add(tool.function.name)
    return names
