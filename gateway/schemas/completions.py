"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from loragate.gateway.schemas.findings import finding
from loragate.gateway.schemas.output_fields import OutputFields
from loragate.gateway.schemas.sampling import MAX_TOP_LOGPROBS, SamplingFields

Prompt = str | list[int]


def _prompts(value: Any) -> Any:
    """A string, token ids, a list of strings or a list of token-id lists, as a list of prompts."""
    if isinstance(value, str) or _is_token_ids(value):
        return [value]
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return value
    if isinstance(value, list) and value and all(_is_token_ids(item) for item in value):
        return value
    raise PydanticCustomError(
        "prompt", "must be a string, a list of strings, a list of token ids, or a list of such lists", {}
    )


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


class CompletionRequest(SamplingFields, OutputFields):
    """OpenAI's completion request. `prompt` is always a list once parsed."""

    prompt: Annotated[list[Any], BeforeValidator(_prompts)]
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "CompletionRequest":
        if self.echo and self.logprobs is not None:
            raise finding("logprobs", "those of an echoed prompt are not supported: leave one of the two out")
        return self

    @property
    def prompts(self) -> list[Prompt]:
        """Each is a text or a non-empty list of integers, not yet checked against the vocabulary."""
        return self.prompt
