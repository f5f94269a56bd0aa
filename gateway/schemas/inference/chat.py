"""The body of POST /v1/chat/completions."""

from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.inference.output_fields import OutputFields
from loragate.gateway.schemas.inference.sampling import MAX_TOP_LOGPROBS, SamplingFields
from loragate.gateway.schemas.inference.tools import ToolFields
from loragate.prompts.messages import ChatMessage, check_tool_results
from loragate.prompts.validation import field_error


class ChatRequest(SamplingFields, ToolFields, OutputFields):
    """OpenAI's chat request. `max_completion_tokens` is the newer name of `max_tokens`."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=4096)]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "it is only allowed when 'logprobs' is true")
        if None not in (self.max_tokens, self.max_completion_tokens):
            raise field_error("max_tokens", "it is the same as 'max_completion_tokens': give only one of them")
        check_tool_results(self.messages)
        return self

    @property
    def token_limit(self) -> int | None:
        """The maximum number of tokens of one completion; None if the request omits it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """The number of alternatives for each token's logprob; None if no logprobs are requested."""
        return (self.top_logprobs or 0) if self.logprobs else None
