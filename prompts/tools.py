"""Tool definitions, and the tool calls of an assistant message."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.json_schema import JsonSchema
from loragate.prompts.validation import Body, field_error, without

MAX_TOOLS = 128
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def _require_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise PydanticCustomError("schema", "the schema must be of type 'object'", {})
    return schema


FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
ArgumentsSchema = Annotated[JsonSchema, AfterValidator(_require_object)]


class FunctionDefinition(Body):
    """The name, purpose and parameters of a function; without `parameters` it takes no arguments."""

    name: FunctionName
    description: Annotated[str, StringConstraints(max_length=1 << 16)] | None = None
    parameters: ArgumentsSchema | None = None
    strict: bool | None = None

    @property
    def arguments_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, an object."""
        return self.parameters or _NO_ARGUMENTS


def _describe(schema: dict[str, Any]) -> None:
    schema["properties"]["cache_control"] = {"description": "Accepted, without effect."}


class Tool(Body):
    """One entry of `tools`."""

    model_config = ConfigDict(json_schema_extra=_describe)

    type: Literal["function"]
    function: FunctionDefinition

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, tool: Any) -> Any:
        return without(tool, ("cache_control",))

    def for_template(self) -> dict[str, Any]:
        """Return the tool in the form that chat templates expect."""
        function = self.function
        described = {} if function.description is None else {"description": function.description}
        return {
            "type": "function",
            "function": {"name": function.name, **described, "parameters": function.arguments_schema},
        }


class CalledFunction(Body):
    """The called function and its arguments as the model wrote them: usually, but not necessarily, valid JSON."""

    name: FunctionName
    arguments: str

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, function: Any) -> Any:
        return without(function, ("parsed_arguments",))  # OpenAI's helpers add it


class MessageToolCall(Body):
    """One entry of an assistant message's `tool_calls`."""

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, call: Any) -> Any:
        return without(call, ("index", "cache_control"))  # calls that were put together from a stream have an index

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    type: Literal["function"]
    function: CalledFunction


def tool_names(tools: Sequence[Tool], field: str = "tools") -> set[str]:
    """Return the names of the tools. Raise an error of the request's field for a repeated name."""
    names: set[str] = set()
    for position, tool in enumerate(tools):
        if tool.function.name in names:
            path = f"{field}.{position}.name" if field == "functions" else f"{field}.{position}.function.name"
            raise field_error(path, "another tool has the same name")
        names.add(tool.function.name)
    return names
