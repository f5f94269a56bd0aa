"""The body of POST /v1/responses."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from loragate.gateway.schemas.inference.output_fields import JsonSchemaFormat
from loragate.gateway.schemas.inference.reasoning import Effort
from loragate.gateway.schemas.inference.response_items import InputItem
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, ModelName, User, check_stream_options
from loragate.prompts.tools import MAX_TOOLS, FunctionDefinition, FunctionName
from loragate.prompts.validation import Body, field_error, without

_NO_EFFECT = (
    "client_metadata",
    "max_tool_calls",  # of tools that run on the server, of which there are none
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
)

# Field → the values without an effect, in addition to null, and the reason why no other value is accepted.
_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "a response is complete when its request ends"),
    "context_management": (([],), "this server does not support it"),
    "conversation": ((), "responses are not stored here: send the items of the conversation as 'input'"),
    "moderation": ((), "this server does not support it"),
    "previous_response_id": ((), "responses are not stored here: send the items of the conversation as 'input'"),
    "prompt": ((), "this server stores no prompts"),
    "store": ((False,), "responses are not stored here: leave it out, or send false"),
    "truncation": (("disabled", "auto"), "an input that is too long is rejected"),
}


class ResponseTextFormat(Body):
    """The format of the text, like chat's `response_format` without the level `json_schema`."""

    type: Literal["text", "json_object"]


class ResponseJsonSchema(JsonSchemaFormat):
    """A response that matches a JSON schema."""

    type: Literal["json_schema"]


class TextField(Body):
    """The settings of the text."""

    format: Annotated[ResponseTextFormat | ResponseJsonSchema, Field(discriminator="type")] | None = None
    verbosity: Literal["medium"] | None = None


class ResponseTool(FunctionDefinition):
    """A function."""

    type: Literal["function"]
    namespace: FunctionName | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, tool: Any) -> Any:
        return without(tool, _IGNORED_OF_TOOLS)


class CustomFormat(Body):
    """The form of a custom tool's input: any text, or what a grammar allows."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: Annotated[str, StringConstraints(min_length=1, max_length=64 << 10)] | None = None

    @model_validator(mode="after")
    def _has_a_grammar(self) -> "CustomFormat":
        for name in ("syntax", "definition"):
            if (getattr(self, name) is not None) != (self.type == "grammar"):
                raise field_error(name, "it must be given exactly when the type is 'grammar'")
        return self


class ResponseCustomTool(Body):
    """A tool whose input is a text instead of JSON arguments. The model reads its grammar as part of the description;
    a regex also holds where a call is required."""

    type: Literal["custom"]
    name: FunctionName
    description: Annotated[str, StringConstraints(max_length=1 << 16)] | None = None
    format: CustomFormat | None = None
    namespace: FunctionName | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, tool: Any) -> Any:
        return without(tool, _IGNORED_OF_TOOLS)


_IGNORED_OF_TOOLS = ("cache_control", "defer_loading", "allowed_callers")
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


class ResponseNamedTool(Body):
    """A function or a custom tool by its name."""

    type: Literal["function", "custom"]
    name: FunctionName


class ResponseAllowedTools(Body):
    """The only tools that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponseNamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


ResponseTools = Annotated[
    list[Annotated[ResponseTool | ResponseCustomTool, Field(discriminator="type")]],
    Field(max_length=MAX_TOOLS),
    BeforeValidator(_flat_tools),
]
# Only the logprobs change the response: the others are of items that it never has.
Includable = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
]
ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[ResponseNamedTool | ResponseAllowedTools, Field(discriminator="type")]
)
Metadata = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    Field(max_length=16),
]


def _describe(schema: dict[str, Any]) -> None:
    schema["properties"] |= {name: {"description": "Accepted, without effect."} for name in _NO_EFFECT}
    for name, (neutral, why) in _UNSUPPORTED.items():
        schema["properties"][name] = {"enum": [None, *neutral], "description": f"No other value is accepted: {why}."}


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class ResponseReasoning(Body):
    """How much the model is to reason, and whether the reasoning is also given as a summary."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None  # the older name

    @property
    def wanted_summary(self) -> str | None:
        """The kind of summary; None for none. The reasoning itself is given as any of them."""
        return self.summary or self.generate_summary


class ResponseStreamOptions(Body):
    """The options of a stream."""

    include_obfuscation: bool | None = None  # accepted; nothing is obfuscated


class ResponseRequest(Body):
    """OpenAI's request for a response. Responses are not stored, so `input` must contain the whole conversation."""

    model_config = ConfigDict(json_schema_extra=_describe)

    model: ModelName
    input: Annotated[
        list[InputItem],
        Field(min_length=1, max_length=4096),
        BeforeValidator(
            _as_items, json_schema_input_type=str | Annotated[list[InputItem], Field(min_length=1, max_length=4096)]
        ),
    ]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    include: Annotated[list[Includable], Field(max_length=16)] | None = None
    text: TextField | None = None
    reasoning: ResponseReasoning | None = None
    tools: ResponseTools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    metadata: Metadata | None = None
    user: User | None = None
    safety_identifier: User | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_extras(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        for name, (neutral, why) in _UNSUPPORTED.items():
            value = document.get(name)
            if value is not None and value not in neutral:
                raise field_error(name, why)
        return {name: value for name, value in document.items() if name not in (*_NO_EFFECT, *_UNSUPPORTED)}

    @model_validator(mode="after")
    def _check_stream_options(self) -> "ResponseRequest":
        check_stream_options(self.stream_options, stream=self.stream)
        return self

    @property
    def wants_logprobs(self) -> bool:
        """Whether the logprobs of the text's tokens are requested."""
        return "message.output_text.logprobs" in (self.include or ()) or self.top_logprobs is not None

    @property
    def custom_tools(self) -> set[str]:
        """The names of the custom tools."""
        return {tool.name for tool in self.tools or () if isinstance(tool, ResponseCustomTool)}

    @property
    def namespaces(self) -> dict[str, str]:
        """The namespaces of the tools that have one, by the tools' names."""
        return {tool.name: tool.namespace for tool in self.tools or () if tool.namespace is not None}
