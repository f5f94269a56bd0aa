"""The body of POST /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from loragate.gateway.schemas.inference.openai_fields import MODERATION, VERBOSITY, PromptCacheOptions
from loragate.gateway.schemas.inference.output_fields import JsonSchemaFormat
from loragate.gateway.schemas.inference.reasoning import Effort
from loragate.gateway.schemas.inference.response_items import ItemOrReference
from loragate.gateway.schemas.inference.response_tools import ResponseTools, ToolChoice
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, ModelName, User, check_stream_options
from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error


class ResponseTextFormat(ClientBody):
    """The format of the text, like chat's `response_format` without the level `json_schema`."""

    type: Literal["text", "json_object"]


class ResponseJsonSchema(JsonSchemaFormat):
    """A response that matches a JSON schema."""

    type: Literal["json_schema"]


class TextField(ClientBody):
    """The settings of the text."""

    extras = ExtraFields(refused={"verbosity": VERBOSITY})

    format: Annotated[ResponseTextFormat | ResponseJsonSchema, Field(discriminator="type")] | None = None


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
Metadata = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    Field(max_length=16),
]


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class ResponseReasoning(ClientBody):
    """How much the model is to reason, and whether the reasoning is also given as a summary."""

    extras = ExtraFields(
        refused={
            "context": Refused("the chat template says which reasoning it keeps: send 'auto'", ("auto",)),
            "mode": Refused("the model has no such mode: leave it out, or send 'standard'", ("standard",)),
        }
    )

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None  # the older name

    @property
    def wanted_summary(self) -> str | None:
        """The kind of summary; None for none. The reasoning itself is given as any of them."""
        return self.summary or self.generate_summary


class ResponseStreamOptions(ClientBody):
    """The options of a stream."""

    extras = ExtraFields(ignored=("include_obfuscation",))


StoredId = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class ConversationRef(ClientBody):
    """A conversation by its id."""

    id: StoredId


def _as_reference(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


class ResponseRequest(ClientBody):
    """OpenAI's request for a response. `input` follows the items of `previous_response_id` or `conversation`, if one of
    them is given. Without `store`, the tenant's setting decides; `background` needs a stored response."""

    extras = ExtraFields(
        ignored=(
            "access_programs",
            "client_metadata",
            "image",
            "max_tool_calls",  # of tools that run on the server, of which there are none
            "prompt_cache_key",
            "prompt_cache_retention",
            "service_tier",
        ),
        refused={
            "context_management": Refused("no input is shortened here: leave it out", ([],)),
            "moderation": MODERATION,
            "prompt": Refused("this server stores no prompts: send its text as 'instructions' and 'input'"),
            "truncation": Refused("an input that is too long is rejected: send 'disabled'", ("disabled", "auto")),
        },
    )

    model: ModelName
    input: Annotated[
        list[ItemOrReference],
        Field(min_length=1, max_length=4096),
        BeforeValidator(
            _as_items,
            json_schema_input_type=str | Annotated[list[ItemOrReference], Field(min_length=1, max_length=4096)],
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
    prompt_cache_options: PromptCacheOptions | None = None  # without effect
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: StoredId | None = None
    conversation: Annotated[
        ConversationRef | None, BeforeValidator(_as_reference, json_schema_input_type=str | ConversationRef | None)
    ] = None

    @model_validator(mode="after")
    def _check_state(self) -> "ResponseRequest":
        if self.previous_response_id is not None and self.conversation is not None:
            raise field_error("conversation", "send either this or 'previous_response_id'")
        if self.background and self.store is False:
            raise field_error("background", "a response in the background must be stored: leave out store=false")
        return self

    @model_validator(mode="after")
    def _check_stream_options(self) -> "ResponseRequest":
        check_stream_options(self.stream_options, stream=self.stream)
        return self

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation."""
        return None if self.conversation is None else self.conversation.id

    @property
    def wants_logprobs(self) -> bool:
        """Whether the logprobs of the text's tokens are requested."""
        return "message.output_text.logprobs" in (self.include or ()) or self.top_logprobs is not None

    @property
    def namespaces(self) -> dict[str, str]:
        """The namespaces of the tools that have one, by the tools' names."""
        return {tool.name: tool.namespace for tool in self.tools or () if tool.namespace is not None}
