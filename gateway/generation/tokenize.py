"""Tokenization of prompts, for long ones off the event loop, and what they leave of the context window."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.inference.prompts import Prompt
from loragate.gateway.text.base_model import BaseModel
from loragate.prompts.chat_template import ChatTemplate, TemplateError
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import rendered_size, template_messages
from loragate.prompts.tools import Tool

T = TypeVar("T")

# Rendering and tokenizing this much takes about a millisecond.
_INLINE_CHARACTERS = 4096


async def chat_to_tokens(base: BaseModel, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> list[int]:
    """Render and tokenize the messages. Raises InvalidRequest for messages that the base model's template rejects."""
    template = base.chat_template
    if template is None:
        raise InvalidRequest(
            f"The base model '{base.id}' has no chat template: use /v1/completions.",
            param="messages",
            code="no_chat_template",
        )
    large = bool(tools) or rendered_size(messages) > _INLINE_CHARACTERS  # a tool may have a schema of any size
    return await _off_loop_if(large, lambda: _chat_to_tokens(base, template, messages, tools))


async def prompts_to_tokens(base: BaseModel, prompts: Sequence[Prompt], param: str) -> tuple[Sequence[int], ...]:
    """Tokenize texts with the special tokens of a plain prompt; return token ids as they are. `param` is the request's
    field.

    Raises InvalidRequest for prompts that are empty, outside the vocabulary, or certainly longer than the context.
    """
    size = sum(map(len, prompts))
    large = size > _INLINE_CHARACTERS
    return await _off_loop_if(large, lambda: tuple(_prompt_to_tokens(base, prompt, param) for prompt in prompts))


def _prompt_to_tokens(base: BaseModel, prompt: Prompt, param: str) -> Sequence[int]:
    if not isinstance(prompt, str):
        if not base.accepts(prompt):
            raise InvalidRequest(
                f"Invalid '{param}': token ids must be from 0 to {base.manifest.vocab_size - 1}.",
                param=param,
                code="invalid_value",
            )
        return prompt
    check_length_of_text(base, prompt, param)
    tokens = base.tokenizer.encode_text(prompt)
    if not tokens:
        raise InvalidRequest(f"Invalid '{param}': it is empty.", param=param, code="invalid_value")
    return tokens


def _chat_to_tokens(
    base: BaseModel, template: ChatTemplate, messages: Sequence[ChatMessage], tools: Sequence[Tool]
) -> list[int]:
    try:
        rendered = template.render(
            template_messages(messages, template.traits), [tool.for_template() for tool in tools]
        )
    except TemplateError as error:
        raise InvalidRequest(
            f"The chat template rejected the messages: {error}.", param="messages", code="invalid_messages"
        ) from None
    check_length_of_text(base, rendered, "messages")
    tokens = base.tokenizer.encode_chat(rendered)
    if not tokens:
        raise InvalidRequest("The chat template rendered nothing.", param="messages", code="invalid_messages")
    return tokens


async def _off_loop_if(large: bool, work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work) if large else work()


def room_for_completion(base: BaseModel, prompt_tokens: int, wanted: int | None, default: int, param: str) -> int:
    """Return the token limit of the completion. Without `wanted` it is the smaller of `default` and what is left.

    Raises InvalidRequest (`context_length_exceeded`); `param` is "messages" or "prompt".
    """
    left = base.max_model_len - prompt_tokens
    if left < 1:
        raise _exceeded(base, f"your {param} resulted in {prompt_tokens} tokens", param, f"the {param}")
    if wanted is not None and wanted > left:
        parts = f"{prompt_tokens} in the {param}, {wanted} in the completion"
        asked = f"you requested {prompt_tokens + wanted} tokens ({parts})"
        raise _exceeded(base, asked, param, f"the {param} or completion")
    return min(default, left) if wanted is None else wanted


def check_length(base: BaseModel, tokens: int, param: str) -> None:
    """Raise InvalidRequest if the tokens do not fit the context, for requests that generate nothing."""
    if tokens > base.max_model_len:
        raise _exceeded(base, f"your {param} resulted in {tokens} tokens", param, f"the {param}")


def check_length_of_text(base: BaseModel, text: str, param: str) -> None:
    """Raise InvalidRequest if the text is too long for any tokenization, before any work is done on it."""
    least = -(-len(text) // base.tokenizer.longest_token)
    if least > base.max_model_len:
        raise _exceeded(base, f"your {param} resulted in at least {least} tokens", param, f"the {param}")


def _exceeded(base: BaseModel, fact: str, param: str, reduce: str) -> InvalidRequest:
    return InvalidRequest(
        f"This model's maximum context length is {base.max_model_len} tokens. However, {fact}. "
        f"Please reduce the length of {reduce}.",
        param=param,
        code="context_length_exceeded",
    )
