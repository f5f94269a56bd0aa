"""`tools` and `tool_choice` of a request for a response."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error
from loragate.prompts.custom_tools import Definition, Syntax
from loragate.prompts.tools import MAX_TOOLS, Description, FunctionDefinition, FunctionName

_OF_TOOLS = ExtraFields(
    ignored=("allowed_callers", "cache_control", "defer_loading", "output_schema"),
    refused={"async": Refused("the model waits for results: leave it out, or send false", (False,))},
)


class ResponseTool(FunctionDefinition):
    """A function."""

    extras = _OF_TOOLS

    type: Literal["function"]
    namespace: FunctionName | None = None


class CustomFormat(ClientBody):
    """The form of a custom tool's input: any text, or what a grammar allows."""

    type: Literal["text", "grammar"]
    syntax: Syntax | None = None
    definition: Definition | None = None

    @model_validator(mode="after")
    def _has_a_grammar(self) -> "CustomFormat":
        for name in ("syntax", "definition"):
            if (getattr(self, name) is not None) != (self.type == "grammar"):
                raise field_error(name, "it must be given exactly when the type is 'grammar'")
        return self


class ResponseCustomTool(ClientBody):
    """A tool whose input is a text instead of JSON arguments; see `CustomDefinition`."""

    extras = _OF_TOOLS

    type: Literal["custom"]
    name: FunctionName
    description: Description | None = None
    format: CustomFormat | None = None
    namespace: FunctionName | None = None


# How a client is configured not to send a tool that runs on OpenAI's servers.
_TURNED_OFF = {
    "web_search": """in Codex set `web_search = "disabled"` in config.toml""",
    "image_generation": "in Codex set `image_generation = false` under `[features]` in config.toml",
}
_HOSTED = ("web_search", "file_search", "code_interpreter", "mcp", "image_generation", "computer")


def _flat_tools(tools: Any) -> Any:
    """Return the tools with those of namespaces in their places. Raise an error for tools that this server would have
    to run."""
    if not isinstance(tools, list):
        return tools
    flat: list[Any] = []
    for position, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "namespace":
            flat += _of_namespace(tool, position)
        elif isinstance(kind, str) and kind not in ("function", "custom"):
            raise field_error(f"{position}.type", _refusal(kind))
        else:
            flat.append(tool)
    return flat


def _of_namespace(namespace: dict[str, Any], position: int) -> list[Any]:
    tools = namespace.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise field_error(f"{position}.tools", "it must be a list of functions and custom tools")
    if any(tool.get("type") not in ("function", "custom") for tool in tools):
        raise field_error(f"{position}.tools", "a namespace may only contain functions and custom tools")
    return [{**tool, "namespace": namespace.get("name")} for tool in tools]


def _refusal(kind: str) -> str:
    hosted = next((name for name in _HOSTED if kind.startswith(name)), None)
    if hosted is None:
        return "tools of this type are not supported: send functions or custom tools"
    off = _TURNED_OFF.get(hosted, "in Codex remove it from config.toml")
    camel = "".join(part.capitalize() for part in hosted.split("_"))
    camel = "HostedMCP" if hosted == "mcp" else camel
    return (
        f"this server runs no tools ('{hosted}' is one of OpenAI's own): {off}; in the AI SDK remove "
        f"`openai.tools.{_AI_SDK[hosted]}` and in openai-agents `{camel}Tool` from `tools`"
    )


_AI_SDK = {
    "web_search": "webSearch",
    "file_search": "fileSearch",
    "code_interpreter": "codeInterpreter",
    "mcp": "mcp",
    "image_generation": "imageGeneration",
    "computer": "computer",
}


def _check_kind(kind: Any) -> Any:
    if isinstance(kind, str) and kind not in ("function", "custom"):
        raise PydanticCustomError(
            "tool_choice", "the model calls functions and custom tools only: name one of them", {}
        )
    return kind


class ResponseNamedTool(ClientBody):
    """A function or a custom tool by its name."""

    type: Annotated[Literal["function", "custom"], BeforeValidator(_check_kind)]
    name: FunctionName


class ResponseAllowedTools(ClientBody):
    """The only tools that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponseNamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


ResponseTools = Annotated[
    list[Annotated[ResponseTool | ResponseCustomTool, Field(discriminator="type")]],
    Field(max_length=MAX_TOOLS),
    BeforeValidator(_flat_tools),
]


def _kind_of_choice(choice: Any) -> str:
    """Return which form a choice has."""
    if not isinstance(choice, dict | ResponseNamedTool | ResponseAllowedTools):
        return "mode"
    kind = choice.get("type") if isinstance(choice, dict) else choice.type
    return "allowed" if kind == "allowed_tools" else "named"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[ResponseNamedTool, Tag("named")]
    | Annotated[ResponseAllowedTools, Tag("allowed")],
    Discriminator(_kind_of_choice),
]
