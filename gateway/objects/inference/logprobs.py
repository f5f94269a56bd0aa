"""Logprobs in the two shapes of OpenAI's API."""

from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from loragate.gateway.generation import output as generated
from loragate.gateway.generation.prompt_logprobs import PromptLogprobs
from loragate.gateway.objects.common import Count
from loragate.gateway.text.detokenizer import detokenizer
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
    """Four lists of equal length, with one entry per token. With `echo`, the prompt's tokens come first; the first of
    them has no logprobs."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class PromptTokenLogprob(TypedDict):
    """A prompt token, or a candidate in its place. `rank` counts all tokens from 1, the most probable."""

    logprob: float
    rank: int
    decoded_token: str


PromptTokens = list[dict[str, PromptTokenLogprob] | None]
"""One entry for each token of a prompt: by token id, the token itself and the most probable ones; the first is null."""


def prompt_logprobs(tokenizer: TextTokenizer, prompt: PromptLogprobs, top: int) -> PromptTokens:
    """Return the `prompt_logprobs` of a prompt, in vLLM's shape."""

    def entry(token_id: int, logprob: float, rank: int) -> PromptTokenLogprob:
        text = tokenizer.token_bytes(token_id).decode(errors="replace")
        return {"logprob": max(logprob, _MIN_LOGPROB), "rank": rank, "decoded_token": text}

    found: PromptTokens = []
    for token in prompt.tokens(top):
        if token.logprob is None:
            found.append(None)
            continue
        entries = {str(token.token_id): entry(token.token_id, token.logprob, token.rank)}
        for rank, (token_id, logprob) in enumerate(token.top, 1):
            entries.setdefault(str(token_id), entry(token_id, logprob, rank))
        found.append(entries)
    return found


def echo_logprobs(tokenizer: TextTokenizer, prompt: PromptLogprobs, top: int, text: str) -> CompletionLogprobs:
    """Return the `logprobs` of a prompt that is echoed as `text`."""
    shown = detokenizer(tokenizer, ())
    found: CompletionLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = 0
    for token in prompt.tokens(top):
        known = token.logprob is not None
        found["tokens"].append(_name(tokenizer, token.token_id))
        found["token_logprobs"].append(None if token.logprob is None else max(token.logprob, _MIN_LOGPROB))
        found["top_logprobs"].append(_alternatives(tokenizer, token.top) if known else None)
        found["text_offset"].append(min(offset, len(text)))
        offset += len(shown.push(token.token_id))
    return found


def joined(prompt: CompletionLogprobs, completion: CompletionLogprobs, shift: int) -> CompletionLogprobs:
    """Return the logprobs of an echoed prompt of `shift` characters and of its completion."""
    return {
        "tokens": prompt["tokens"] + completion["tokens"],
        "token_logprobs": prompt["token_logprobs"] + completion["token_logprobs"],
        "top_logprobs": prompt["top_logprobs"] + completion["top_logprobs"],
        "text_offset": prompt["text_offset"] + [shift + offset for offset in completion["text_offset"]],
    }


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
        "top_logprobs": [_alternatives(tokenizer, token.top) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _alternatives(tokenizer: TextTokenizer, top: Iterable[tuple[int, float]]) -> dict[str, float]:
    return {_name(tokenizer, token_id): max(logprob, _MIN_LOGPROB) for token_id, logprob in top}


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
