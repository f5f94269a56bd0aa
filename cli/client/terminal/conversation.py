"""A conversation over the chat completions API, with its streamed replies."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.errors import CliError


def _ignore(reasoning: str) -> None:
    pass


class Conversation:
    """Holds every message so far and sends all of them with each turn. A failed turn is not recorded."""

    def __init__(self, api: Api, model: str, *, system: str | None = None, **sampling: float | int | None) -> None:
        self._api = api
        self._model = model
        self._sampling = {name: value for name, value in sampling.items() if value is not None}
        self._messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []

    def send(self, prompt: str, on_reasoning: Callable[[str], None] = _ignore) -> Iterator[str]:
        """Send a message and yield the reply in pieces as they arrive. `on_reasoning` gets the model's reasoning."""
        messages = [*self._messages, {"role": "user", "content": prompt}]
        body: dict[str, Any] = {"model": self._model, "messages": messages, "stream": True, **self._sampling}
        reply: list[str] = []
        with self._api.stream("POST", "/v1/chat/completions", json=body) as response:
            for piece in chat_text(response.iter_lines(), on_reasoning):
                reply.append(piece)
                yield piece
        self._messages = [*messages, {"role": "assistant", "content": "".join(reply)}]


def chat_text(lines: Iterable[str], on_reasoning: Callable[[str], None] = _ignore) -> Iterator[str]:
    """Yield the text of a streamed reply, piece by piece.

    Raise CliError for an error event, and when the stream ends without `[DONE]`.
    """
    for line in lines:
        text = text_in(line, on_reasoning)
        if text is None:
            return
        if text:
            yield text
    raise CliError("the reply ended before it was complete")


def text_in(line: str, on_reasoning: Callable[[str], None] = _ignore) -> str | None:
    """Return the text in a line of a streamed reply, None for its end. Raise CliError for an error event."""
    if not line.startswith("data:"):
        return ""
    data = line.removeprefix("data:").strip()
    if data == "[DONE]":
        return None
    event = json.loads(data)
    if "error" in event:
        raise CliError(str(event["error"].get("message", "the server ended the reply with an error")))
    deltas = [choice.get("delta", {}) for choice in event.get("choices", ())]
    if reasoning := "".join(delta.get("reasoning") or "" for delta in deltas):
        on_reasoning(reasoning)
    return "".join(delta.get("content") or "" for delta in deltas)
