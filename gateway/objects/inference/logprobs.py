"""Logprobs in the two shapes of OpenAI's API."""

from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.common import Count
from loragate.prompts.tokenizer import TextTokenizer

_MIN_LOGPROB = -9999.0  # OpenAI's value for a token that was all but impossible; JSON has no infinity


class AlternativeToken(TypedDict):
    """A candidate token, with its UTF-8 bytes."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(AlternativeToken):
    """A generated token, and the most probable candidates in its place."""

    top_logprobs: list[AlternativeToken]


class ChatLogprobs(TypedDict):
    """The logprobs of the tokens that the text consists of. `refusal` is always null."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """Four lists of equal length, with one entry per token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[Count]


def chat_logprobs(tokenizer: TextTokenizer, tokens: Iterable[generated.TokenLogprob]) -> ChatLogprobs:
    """Return the `logprobs` of a chat choice."""
    return {"content": token_logprobs(tokenizer, tokens), "refusal": None}


def token_logprobs(tokenizer: TextTokenizer, tokens: Iterable[generated.TokenLogprob]) -> list[TokenLogprob]:
    """Return an entry for each token, with its candidates."""
    return [
        {
            **_entry(tokenizer, token.token_id, token.logprob),
            "top_logprobs": [_entry(tokenizer, token_id, logprob) for token_id, logprob in token.top],
        }
        for token in tokens
    ]


def completion_logprobs(tokenizer: TextTokenizer, tokens: Sequence[generated.TokenLogprob]) -> CompletionLogprobs:
    """Return the `logprobs` of a completion choice."""
    return {
        "tokens": [_name(tokenizer, token.token_id) for token in tokens],
        "token_logprobs": [max(token.logprob, _MIN_LOGPROB) for token in tokens],
        "top_logprobs": [
            {_name(tokenizer, token_id): max(logprob, _MIN_LOGPROB) for token_id, logprob in token.top}
            for token in tokens
        ],
        "text_offset": [token.offset for token in tokens],
    }


def _entry(tokenizer: TextTokenizer, token_id: int, logprob: float) -> AlternativeToken:
    raw = tokenizer.token_bytes(token_id)
    return {"token": raw.decode(errors="replace"), "logprob": max(logprob, _MIN_LOGPROB), "bytes": list(raw)}


def _name(tokenizer: TextTokenizer, token_id: int) -> str:
    """Return a token as text; one that is only part of a character as its bytes, so that no two have the same name."""
    raw = tokenizer.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
