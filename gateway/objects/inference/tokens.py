"""Tokens of a text, and the text of tokens, in vLLM's shapes."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from loragate.gateway.objects.common import Count
from loragate.gateway.text.base_model import BaseModel


class Tokens(TypedDict):
    """The ids of the tokens, and `token_strs`, how the vocabulary spells them, if the request asks for it."""

    count: Count
    max_model_len: Count
    tokens: list[Count]
    token_strs: list[str] | None


class DetokenizedPrompt(TypedDict):
    """The text of the tokens, special ones included."""

    prompt: str


def tokens_object(base: BaseModel, tokens: Sequence[int], *, spelled: bool) -> Tokens:
    """Return the tokens; if `spelled`, also as the vocabulary spells them."""
    return {
        "count": len(tokens),
        "max_model_len": base.max_model_len,
        "tokens": list(tokens),
        "token_strs": base.tokenizer.token_strs(tokens) if spelled else None,
    }
