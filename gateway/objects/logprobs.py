"""Logprobs in the two shapes of OpenAI's API."""

from collections.abc import Iterable, Sequence
from typing import Any

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.common import Count
from loragate.prompts.tokenizer import TextTokenizer


class AlternativeToken(TypedDict):
    """A token that might have been."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(AlternativeToken):
    """A token, and the likeliest in its place."""

    top_logprobs: list[AlternativeToken]


class ChatLogprobs(TypedDict):
    """Of the tokens that the text came from."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """Four lists of the same length, one entry a token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[Count]


_LEAST = -9999.0  # OpenAI's value for a token that was all but impossible; JSON has no infinity


def chat_logprobs(tokenizer: TextTokenizer, tokens: Iterable[generated.TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a chat choice."""
    content = [
        {
            **_entry(tokenizer, token.token_id, token.logprob),
            "top_logprobs": [_entry(tokenizer, token_id, logprob) for token_id, logprob in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(tokenizer: TextTokenizer, tokens: Sequence[generated.TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a completion choice."""
    return {
        "tokens": [_name(tokenizer, token.token_id) for token in tokens],
        "token_logprobs": [max(token.logprob, _LEAST) for token in tokens],
        "top_logprobs": [
            {_name(tokenizer, token_id): max(logprob, _LEAST) for token_id, logprob in token.top} for token in tokens
        ],
        "text_offset": [token.offset for token in tokens],
    }


def _entry(tokenizer: TextTokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token_id)
    return {"token": raw.decode(errors="replace"), "logprob": max(logprob, _LEAST), "bytes": list(raw)}


def _name(tokenizer: TextTokenizer, token_id: int) -> str:
    """A token as text; one that is only a part of a character as its bytes, so that no two look alike."""
    raw = tokenizer.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
