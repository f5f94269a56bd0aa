"""The body of POST /v1/completions."""

from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.prompts import Prompt, Prompts
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, SamplingFields
from loragate.prompts.validation import field_error


class CompletionRequest(SamplingFields, OutputFields):
    """OpenAI's completion request. `prompt` is one prompt or a list of prompts."""

    prompt: Prompts
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "CompletionRequest":
        if self.echo and self.logprobs is not None:
            raise field_error("logprobs", "it cannot be combined with 'echo': logprobs of a prompt are not supported")
        return self

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, in order."""
        return self.prompt
