"""The context window, which prompt and completion share. Error messages have OpenAI's wording."""

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.text.base_model import BaseModel


def room_for_completion(base: BaseModel, prompt_tokens: int, wanted: int | None, default: int, param: str) -> int:
    """Return the token limit of the completion. Without `wanted` it is `default` or what is left, whichever is less.

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
