"""The fields that constrain a completion's text: OpenAI's `response_format` and vLLM's `structured_outputs`."""

import json
from typing import Annotated, Any, Literal

import pydantic_core
from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from loragate.prompts.bodies import ClientBody, ExtraFields, Refused, field_error
from loragate.prompts.json_schema import JsonSchema
from loragate.v1 import engine_pb2 as pb

_MAX_OPTIONS = 1024
_ANY_OBJECT = {"type": "object"}


def _parsed(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return pydantic_core.from_json(schema, allow_inf_nan=False)
    except ValueError:
        raise PydanticCustomError("schema", "the schema is not valid JSON", {}) from None


class JsonSchemaFormat(ClientBody):
    """`response_format.json_schema`. Without a `schema`, any object matches. A schema is enforced with any `strict`."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: Annotated[str, StringConstraints(max_length=1 << 16)] | None = None
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(ClientBody):
    """The format of the response. With the type `json_object`, a schema may be given as `schema` (LoRAX's name) or as
    `value` (TGI's, which huggingface_hub sends)."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: JsonSchema | None = Field(default=None, alias="schema")
    value: JsonSchema | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ResponseFormat":
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise field_error("json_schema", "it must be given exactly when the type is 'json_schema'")
        for name, schema in (("schema", self.schema_), ("value", self.value)):
            if schema is not None and self.type != "json_object":
                raise field_error(name, "it can be given only when the type is 'json_object'")
        if self.schema_ is not None and self.value is not None:
            raise field_error("value", "it means the same as 'schema': give one of them")
        return self

    @property
    def required_schema(self) -> dict[str, Any] | None:
        """The JSON schema that the response must match; None for any text."""
        if self.type == "text":
            return None
        of_json_schema = None if self.json_schema is None else self.json_schema.schema_
        return next((each for each in (of_json_schema, self.schema_, self.value) if each is not None), _ANY_OBJECT)

    @property
    def grammar(self) -> pb.Grammar | None:
        """The engine's grammar; None for any text."""
        schema = self.required_schema
        if schema is None:
            return None
        return pb.Grammar(json_object=True) if schema is _ANY_OBJECT else pb.Grammar(json_schema=json.dumps(schema))


AnyJsonSchema = Annotated[JsonSchema, BeforeValidator(_parsed, json_schema_input_type=JsonSchema | str)]
Regex = Annotated[str, StringConstraints(max_length=8 << 10)]
Options = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=1024)]],
    Field(min_length=1, max_length=_MAX_OPTIONS),
]
LarkGrammar = Annotated[str, StringConstraints(min_length=1, max_length=64 << 10)]

_OLDER_NAMES = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}


class StructuredOutputs(ClientBody):
    """A constraint on the text. Give exactly one of these."""

    extras = ExtraFields(
        ignored=("disable_fallback",),
        refused={
            "disable_any_whitespace": Refused("this server does not support it: leave it out", (False,)),
            "whitespace_pattern": Refused("this server does not support it: leave it out"),
        },
    )

    json_: AnyJsonSchema | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: Regex | None = None
    choice: Options | None = None
    grammar: LarkGrammar | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "StructuredOutputs":
        if len(self._given) != 1:
            raise PydanticCustomError(
                "structured_outputs", "give exactly one of json, json_object, regex, choice and grammar", {}
            )
        return self

    @property
    def _given(self) -> list[pb.Grammar]:
        given = []
        if self.json_ is not None:
            given.append(pb.Grammar(json_schema=json.dumps(self.json_)))
        if self.json_object:
            given.append(pb.Grammar(json_object=True))
        if self.regex is not None:
            given.append(pb.Grammar(regex=self.regex))
        if self.choice is not None:
            given.append(pb.Grammar(choice=pb.Choice(options=self.choice)))
        if self.grammar is not None:
            given.append(pb.Grammar(lark=self.grammar))
        return given

    @property
    def engine_grammar(self) -> pb.Grammar:
        """The engine's grammar."""
        return self._given[0]


class OutputFields(ClientBody):
    """Without these fields, a completion may be any text. The `guided_…` fields are vLLM's older names of those of
    `structured_outputs`."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: AnyJsonSchema | None = None
    guided_regex: Regex | None = None
    guided_choice: Options | None = None
    guided_grammar: LarkGrammar | None = None

    @model_validator(mode="after")
    def _not_both(self) -> "OutputFields":
        given = [name for name in ("structured_outputs", *_OLDER_NAMES) if getattr(self, name) is not None]
        if len(given) > 1:
            raise field_error(given[1], f"it cannot be combined with '{given[0]}': give only one of them")
        formatted = self.response_format is not None and self.response_format.type != "text"
        if formatted and given:
            raise field_error(given[0], "it cannot be combined with 'response_format'")
        return self

    @property
    def structured_field(self) -> str:
        """The field of the request that gives `structured`."""
        older = (name for name in _OLDER_NAMES if getattr(self, name) is not None)
        return next(older, "structured_outputs")

    @property
    def structured(self) -> StructuredOutputs | None:
        """The constraint on the text, under either name; None for any text."""
        field = self.structured_field
        if field == "structured_outputs":
            return self.structured_outputs
        return StructuredOutputs.model_construct(
            **{"json_" if field == "guided_json" else _OLDER_NAMES[field]: getattr(self, field)}
        )
