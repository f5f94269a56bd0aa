"""Tokenization of prompts, of long ones in other threads, and what they leave of the context window."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from loragate.gateway.errors import ContextLengthExceeded, InvalidRequest
from loragate.gateway.generation.tokenizing_threads import TokenizingThreads
from loragate.gateway.schemas.inference.prompts import Prompt
from loragate.gateway.text.base_model import BaseModel
from loragate.prompts.chat_template import ChatTemplate, Ending, TemplateError
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import rendered_size, template_messages
from loragate.prompts.tools import Tool

T = TypeVar("T")

_INLINE_CHARACTERS = 4096  # rendering and tokenizing this much takes about a millisecond
_INLINE_TOKENS = 1024  # decoding so many takes about as long
_MAX_BYTES_PER_TOKEN = 16  # more than any text has, over the length of a context
_PIECE_CHARACTERS = 32 << 10  # encoding so many takes a tenth of a millisecond


def chat_size(base: BaseModel, messages: Sequence[ChatMessage]) -> int:
    """Return the size of the messages in characters. Raise InvalidRequest for too many, before any work is done on
    them."""
    size = rendered_size(messages)
    _check_size(base, size, "messages")
    return size


def prompts_size(base: BaseModel, prompts: Sequence[Prompt], param: str) -> int:
    """Return the size of the prompts in characters and token ids. Raise InvalidRequest for a text of too many, before
    any work is done on it."""
    for prompt in prompts:
        if isinstance(prompt, str):
            _check_size(base, len(prompt), param)
    return sum(map(len, prompts))


class ChatPrompt(NamedTuple):
    """What a chat template renders. `variables` are the template's own ones that the request sets."""

    messages: Sequence[ChatMessage]
    tools: Sequence[Tool] = ()
    ending: Ending = "prompt"
    variables: Mapping[str, Any] = MappingProxyType({})


class TextPair(NamedTuple):
    """Two texts that one prompt holds, joined as the tokenizer joins a pair."""

    first: str
    second: str


class PromptTokenizer:
    """One per process. `special_tokens`: plain prompts may contain special tokens, spelled or as ids."""

    def __init__(self, threads: TokenizingThreads, *, special_tokens: bool) -> None:
        self._threads = threads
        self._special_tokens = special_tokens

    async def chat(
        self, base: BaseModel, tenant_id: str, size: int, chat: ChatPrompt, *, plain: bool = False
    ) -> list[int]:
        """Render and tokenize the messages, whose `chat_size` is `size`. With `plain`, the tokenizer adds the special
        tokens of a plain prompt, too.

        Raise InvalidRequest for messages that the base model's template rejects or that exceed the context,
        TooManyRequests and Unavailable if too much text is being tokenized.
        """
        template = base.chat_template
        if template is None:
            raise InvalidRequest(
                f"The base model '{base.id}' has no chat template: use /v1/completions.",
                param="messages",
                code="no_chat_template",
            )
        if not chat.tools and size <= _INLINE_CHARACTERS:  # a tool may have a schema of any size
            return _chat_to_tokens(base, template, chat, plain=plain)
        work = partial(_chat_to_tokens, base, template, chat, plain=plain)
        return await self._threads.run(tenant_id, size, work)

    async def prompts(
        self, base: BaseModel, tenant_id: str, size: int, prompts: Sequence[Prompt], param: str
    ) -> tuple[Sequence[int], ...]:
        """Tokenize texts, whose `prompts_size` is `size`, with the special tokens of a plain prompt; return token ids
        as they are. `param` is the request's field.

        Raise InvalidRequest for prompts that are empty, outside the vocabulary, or longer than the context;
        TooManyRequests and Unavailable if too much text is being tokenized.
        """
        if size <= _INLINE_CHARACTERS:
            return self._tokens_of(base, prompts, param)
        return await self._threads.run(tenant_id, size, lambda: self._tokens_of(base, prompts, param))

    async def chats(
        self, base: BaseModel, tenant_id: str, size: int, chats: Sequence[ChatPrompt]
    ) -> tuple[list[int], ...]:
        """Render and tokenize several chats, of `size` characters together. Raise as `chat` does."""
        return tuple([await self.chat(base, tenant_id, size, chat) for chat in chats])

    async def pairs(
        self, base: BaseModel, tenant_id: str, size: int, pairs: Sequence[TextPair], param: str
    ) -> tuple[list[int], ...]:
        """Tokenize pairs of texts, of `size` characters together, with the special tokens that the tokenizer puts
        around and between them. Raise as `prompts` does."""

        def work() -> tuple[list[int], ...]:
            return tuple(self._pair_to_tokens(base, pair, param) for pair in pairs)

        return work() if size <= _INLINE_CHARACTERS else await self._threads.run(tenant_id, size, work)

    async def spans(
        self, base: BaseModel, tenant_id: str, size: int, texts: Sequence[str]
    ) -> tuple[list[tuple[int, int]], ...]:
        """Return the characters [start, stop) of each token of plain prompts, of `size` characters together. A token
        that the tokenizer adds has none, [0, 0). Raise TooManyRequests and Unavailable as `prompts` does."""

        def work() -> tuple[list[tuple[int, int]], ...]:
            return tuple(self._text_to_spans(base, text) for text in texts)

        return work() if size <= _INLINE_CHARACTERS else await self._threads.run(tenant_id, size, work)

    def _text_to_spans(self, base: BaseModel, text: str) -> list[tuple[int, int]]:
        special_text = base.tokenizer.special_text
        marked = text if self._special_tokens else special_text.marked(text)
        ((_, spans),) = base.tokenizer.encode_batch([marked], plain=True)
        if marked == text:
            return spans
        position = special_text.unmarked_position(marked)
        return [(position(start), position(stop)) for start, stop in spans]

    def _pair_to_tokens(self, base: BaseModel, pair: TextPair, param: str) -> list[int]:
        given = pair if self._special_tokens else TextPair(*map(base.tokenizer.special_text.marked, pair))
        _check_size(base, sum(utf8_size(text, _MAX_BYTES_PER_TOKEN * base.max_model_len) for text in pair), param)
        tokens = base.tokenizer.encode_pair(*given)
        if not tokens:
            raise InvalidRequest(f"Invalid '{param}': it is empty.", param=param, code="invalid_value")
        check_length(base, len(tokens), param)
        return tokens

    async def text(self, base: BaseModel, tenant_id: str, text: str, *, plain: bool) -> list[int]:
        """Tokenize one text, which may be empty; with `plain`, with the special tokens of a plain prompt. Raise as
        `prompts` does."""
        _check_size(base, len(text), "prompt")
        marked = text if self._special_tokens else base.tokenizer.special_text.marked(text)
        work = partial(_encoded, base, marked, "prompt", plain=plain)
        if len(text) <= _INLINE_CHARACTERS:
            return work()
        return await self._threads.run(tenant_id, len(text), work)

    async def spelled(self, base: BaseModel, tenant_id: str, tokens: Sequence[int]) -> str:
        """Return the text of token ids, with special tokens. Raise InvalidRequest for ids outside the vocabulary and
        for more than the context has, TooManyRequests and Unavailable as `prompts` does."""
        check_length(base, len(tokens), "tokens")
        if not base.accepts(tokens):
            raise InvalidRequest(
                f"Invalid 'tokens': token ids must be from 0 to {base.manifest.vocab_size - 1}.",
                param="tokens",
                code="invalid_value",
            )
        work = partial(base.tokenizer.decode, tokens, special=True)
        if len(tokens) <= _INLINE_TOKENS:
            return work()
        return await self._threads.run(tenant_id, len(tokens), work)

    def _tokens_of(self, base: BaseModel, prompts: Sequence[Prompt], param: str) -> tuple[Sequence[int], ...]:
        return tuple(self._prompt_to_tokens(base, prompt, param) for prompt in prompts)

    def _prompt_to_tokens(self, base: BaseModel, prompt: Prompt, param: str) -> Sequence[int]:
        if isinstance(prompt, str):
            text = prompt if self._special_tokens else base.tokenizer.special_text.marked(prompt)
            tokens = _encoded(base, text, param, plain=True)
            if not tokens:
                raise InvalidRequest(f"Invalid '{param}': it is empty.", param=param, code="invalid_value")
            return tokens
        if not base.accepts(prompt):
            raise InvalidRequest(
                f"Invalid '{param}': token ids must be from 0 to {base.manifest.vocab_size - 1}.",
                param=param,
                code="invalid_value",
            )
        if not self._special_tokens and not base.tokenizer.special_ids.isdisjoint(prompt):
            raise InvalidRequest(
                f"Invalid '{param}': special tokens are not allowed on this server.", param=param, code="invalid_value"
            )
        return prompt


def _chat_to_tokens(base: BaseModel, template: ChatTemplate, chat: ChatPrompt, *, plain: bool) -> list[int]:
    try:
        rendered = _rendered(template, chat)
    except TemplateError as error:
        raise InvalidRequest(
            f"The chat template rejected the messages: {error}.", param="messages", code="invalid_messages"
        ) from None
    tokens = _encoded(base, rendered, "messages", plain=plain)
    if not tokens:
        raise InvalidRequest("The chat template rendered nothing.", param="messages", code="invalid_messages")
    return tokens


def _rendered(template: ChatTemplate, chat: ChatPrompt) -> str:
    given, described = template_messages(chat.messages, template.traits), [tool.for_template() for tool in chat.tools]
    if chat.ending == "unfinished":
        return template.render_unfinished(given, described, variables=chat.variables)
    return template.render(given, described, prompt=chat.ending == "prompt", variables=chat.variables)


def _encoded(base: BaseModel, text: str, param: str, *, plain: bool) -> list[int]:
    """Tokenize a text that fits the context. Of others, no more is tokenized than it takes to know that they do not."""
    tokenizer, limit = base.tokenizer, base.max_model_len
    if len(text) > _INLINE_CHARACTERS:
        _check_size(base, utf8_size(text, _MAX_BYTES_PER_TOKEN * limit), param)
        least = tokenizer.least_tokens(text, limit, plain=plain)
        if least > limit:
            raise _exceeded(base, f"your {param} resulted in at least {least} tokens", param, least)
    tokens = tokenizer.encode_text(text) if plain else tokenizer.encode_chat(text)
    check_length(base, len(tokens), param)
    return tokens


def utf8_size(text: str, enough: int) -> int:
    """Return the size of a text in UTF-8; of one over `enough` bytes, that of the first pieces that are over it.

    It is encoded in pieces, because the interpreter is held meanwhile: for 15 ms with 8 MB.
    """
    size = 0
    for start in range(0, len(text), _PIECE_CHARACTERS):
        size += len(text[start : start + _PIECE_CHARACTERS].encode(errors="surrogatepass"))
        if size > enough:
            break
    return size


def room_for_completion(base: BaseModel, prompt_tokens: int, wanted: int | None, default: int, param: str) -> int:
    """Return the token limit of the completion. Without `wanted` it is the smaller of `default` and what is left.

    Raise InvalidRequest (`context_length_exceeded`); `param` is "messages" or "prompt".
    """
    left = base.max_model_len - prompt_tokens
    if left < (wanted != 0):
        raise _exceeded(base, f"your {param} resulted in {prompt_tokens} tokens", param, prompt_tokens)
    if wanted is not None and wanted > left:
        parts = f"{prompt_tokens} in the {param}, {wanted} in the completion"
        asked = f"you requested {prompt_tokens + wanted} tokens ({parts})"
        raise _exceeded(base, asked, param, prompt_tokens, wanted)
    return min(default, left) if wanted is None else wanted


def check_length(base: BaseModel, tokens: int, param: str) -> None:
    """Raise InvalidRequest if the tokens do not fit the context, for requests that generate nothing."""
    if tokens > base.max_model_len:
        raise _exceeded(base, f"your {param} resulted in {tokens} tokens", param, tokens)


def _check_size(base: BaseModel, size: int, param: str) -> None:
    """Raise InvalidRequest if a text of `size` characters or bytes is too long, before any work is done on it."""
    least = -(-size // _MAX_BYTES_PER_TOKEN)
    if least > base.max_model_len:
        fact = f"your {param} resulted in at least {least} tokens, at {_MAX_BYTES_PER_TOKEN} bytes each"
        raise _exceeded(base, fact, param, least)


def _exceeded(base: BaseModel, fact: str, param: str, tokens: int, wanted: int | None = None) -> ContextLengthExceeded:
    reduce = f"the {param}" if wanted is None else f"the {param} or completion"
    return ContextLengthExceeded(
        f"This model's maximum context length is {base.max_model_len} tokens. However, {fact}. "
        f"Please reduce the length of {reduce}.",
        param=param,
        limit=base.max_model_len,
        prompt_tokens=tokens,
        completion_tokens=wanted,
    )
