"""The body of POST /v1/responses."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from loragate.gateway.schemas.inference.output_fields import JsonSchemaFormat
from loragate.gateway.schemas.inference.response_items import InputItem
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, ModelName, User, check_stream_options
from loragate.prompts.tools import MAX_TOOLS, FunctionDefinition, FunctionName
from loragate.prompts.validation import Body, field_error

_NO_EFFECT = ("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier")

# Field → the values without an effect, in addition to null, and the reason why no other value is accepted.
_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "a response is complete when its request ends"),
    "context_management": (([],), "this server does not support it"),
    "conversation": ((), "responses are not stored here: send the items of the conversation as 'input'"),
    "max_tool_calls": ((), "this server has no tools of its own"),
    "moderation": ((), "this server does not support it"),
    "previous_response_id": ((), "responses are not stored here: send the items of the conversation as 'input'"),
    "prompt": ((), "this server stores no prompts"),
    "reasoning": (({}, {"effort": None}, {"effort": "none"}), "this server does not support it"),
    "store": ((False,), "responses are not stored here: leave it out, or send false"),
    "truncation": (("disabled",), "an input that is too long is rejected"),
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
    """One entry of `tools`. Only functions are supported."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, tool: Any) -> Any:
        """Reject a tool of another type before validation reports the fields of a function that it lacks."""
        if isinstance(tool, dict) and tool.get("type", "function") != "function":
            raise field_error("type", "only functions are supported")
        return tool


class ResponseNamedTool(Body):
    """A function by its name."""

    type: Literal["function"]
    name: FunctionName


class ResponseAllowedTools(Body):
    """The only tools that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[ResponseNamedTool], Field(min_length=1, max_length=MAX_TOOLS)]


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
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    include: Annotated[list[Literal["message.output_text.logprobs"]], Field(max_length=1)] | None = None
    text: TextField | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
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
        return bool(self.include) or self.top_logprobs is not None
