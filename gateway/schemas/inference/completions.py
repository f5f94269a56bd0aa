"""The body of POST /v1/completions."""

from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.prompts import Prompt, Prompts
from loragate.gateway.schemas.inference.sampling import MAX_TOKENS, MAX_TOP_LOGPROBS, SamplingFields
from loragate.prompts.bodies import field_error


class CompletionRequest(SamplingFields, OutputFields):
    """OpenAI's completion request. `prompt` is one prompt or a list of prompts. With `echo` and `logprobs`, the
    logprobs begin with those of the prompt."""

    prompt: Prompts
    echo: bool | None = None
    max_tokens: (
        Annotated[
            int,
            Field(ge=0, le=MAX_TOKENS, description="0 with `echo` or `prompt_logprobs` only: nothing is generated."),
        ]
        | None
    ) = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "CompletionRequest":
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise field_error(
                "max_tokens", "it may be 0 only with 'echo' or 'prompt_logprobs'; otherwise send 1 or more"
            )
        return self

    @property
    def echo_logprobs(self) -> int | None:
        """The number of alternatives for each token of an echoed prompt; None if it is not echoed with logprobs."""
        return self.logprobs if self.echo else None

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, in order."""
        return self.prompt
