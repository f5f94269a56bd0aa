"""The bodies of POST /tokenize and /detokenize, which are vLLM's."""

from typing import Annotated

from pydantic import Field, model_validator

from loragate.gateway.schemas.inference.chat import Messages, check_messages, ending_of
from loragate.gateway.schemas.inference.sampling import ModelName, TokenId
from loragate.prompts.bodies import ClientBody, field_error
from loragate.prompts.chat_template import Ending
from loragate.prompts.tools import MAX_TOOLS, Tool, tool_names


class TokenizeRequest(ClientBody):
    """A `prompt`, or the `messages` and `tools` of a chat. Without `model`, it is the base model.

    `add_special_tokens` is true by default for a prompt and false for a chat, whose template writes them.
    """

    model: ModelName | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise field_error("prompt", "give either 'prompt' or 'messages'")
        if self.messages is None:
            for name in ("tools", "add_generation_prompt", "continue_final_message"):
                if getattr(self, name):
                    raise field_error(name, "it is only allowed with 'messages'")
        else:
            check_messages(self.messages, self.ending)
            tool_names(self.tools or ())
        return self

    @property
    def ending(self) -> Ending:
        """Where the prompt of a chat ends."""
        return ending_of(self.add_generation_prompt, self.continue_final_message)


class DetokenizeRequest(ClientBody):
    """Token ids of the base model. Without `model`, it is the base model."""

    model: ModelName | None = None
    tokens: list[TokenId]
