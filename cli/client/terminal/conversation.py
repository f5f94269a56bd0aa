"""A chat as the server sees it: every message so far, sent with each turn."""

from collections.abc import Iterator
from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.event_stream import chat_text


class Conversation:
    """Remembers both sides. A turn that failed leaves no trace, so it can be tried again."""

    def __init__(self, api: Api, model: str, *, system: str | None = None, **sampling: float | int | None) -> None:
        self._api = api
        self._model = model
        self._sampling = {name: value for name, value in sampling.items() if value is not None}
        self._messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []

    def say(self, prompt: str) -> Iterator[str]:
        """Sends a message and yields the answer's pieces as they come."""
        messages = [*self._messages, {"role": "user", "content": prompt}]
        body: dict[str, Any] = {"model": self._model, "messages": messages, "stream": True, **self._sampling}
        answer: list[str] = []
        with self._api.stream("POST", "/v1/chat/completions", json=body) as response:
            for piece in chat_text(response.iter_lines()):
                answer.append(piece)
                yield piece
        self._messages = [*messages, {"role": "assistant", "content": "".join(answer)}]
