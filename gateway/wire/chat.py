"""Chat completions, whole and in chunks."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from loragate.gateway.generation.delta import Completion, TextDelta
from loragate.gateway.wire.chat_choice import ChunkedChoice, whole_choice
from loragate.gateway.wire.response_head import Answer


def chat_completion(answer: Answer, completions: Sequence[Completion]) -> dict[str, Any]:
    """The whole answer."""
    choices = [whole_choice(answer, completion) for completion in completions]
    usage = answer.usage(sum(c.tokens for c in completions), sum(c.cached_tokens for c in completions))
    return {**answer.head("chat.completion"), "choices": choices, "usage": usage}


async def chat_chunks(
    answer: Answer, deltas: AsyncGenerator[TextDelta, None], *, include_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """For each choice its role, its text and calls, and its finish reason; at the end the usage, if wanted."""
    head = answer.head("chat.completion.chunk") | ({"usage": None} if include_usage else {})
    choices = [ChunkedChoice(answer, index) for index in range(answer.request.n)]
    tokens = cached = 0
    async with aclosing(deltas):
        async for delta in deltas:
            tokens += delta.tokens
            cached += delta.cached_tokens
            for chunk in choices[delta.index].push(delta):
                yield {**head, "choices": [chunk]}
    if include_usage:
        yield {**head, "choices": [], "usage": answer.usage(tokens, cached)}
