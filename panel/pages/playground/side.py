"""One of the two conversations shown side by side."""

import time
from collections.abc import Callable

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.api import ApiError, Json, SignedOut
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.tag import div, muted, tag

_DRAW_SECONDS = 0.05  # between two updates of a streamed answer


class Side:
    """A conversation with a model. An empty `model` means none."""

    def __init__(self, context: PageContext, model: str) -> None:
        self.model = model
        self.messages: list[Json] = []
        self._context = context

    def draw(self, label: str) -> None:
        """Draw the conversation's card, which is hidden while there is no model."""
        self._card = tag("section", classes="card", aria_label=label)
        with self._card, div("stack"):
            self._title = tag("h2", self.model, classes="break")
            self._talk = div("talk", role="log", tabindex="0", aria_label=f"{label}: conversation")
            self._figures = muted("", "small")
        self.choose(self.model)

    def choose(self, model: str) -> None:
        """Switch to another model and start a new conversation."""
        self.model = model
        self._title.text = model
        self._card.set_visibility(bool(model))
        self.restart()

    def restart(self) -> None:
        """Start a new conversation."""
        self.messages = []
        self._talk.clear()
        self._figures.text = ""
        with self._talk:
            muted("No messages yet.", "small")

    async def ask(self, prompt: str, body: Callable[[str, list[Json]], Json]) -> None:
        """Send a message and draw the answer while it is generated, or the error in its place."""
        if not self.messages:
            self._talk.clear()
        self.messages.append({"role": "user", "content": prompt})
        with self._talk:
            _bubble("You", prompt, "user")
            thought, words = _answer_bubble(self.model)
        answer = _Answer()
        with words:
            drawing = ui.timer(_DRAW_SECONDS, lambda: _show(answer, thought, words))
        try:
            await self._stream(body(self.model, self.messages), answer)
        except SignedOut:
            with self._talk:
                ui.navigate.to("/sign-in?ended=key")
        except ApiError as failure:
            with self._talk, div("notice bad", role="alert"):
                tag("p", failure.message, classes="grow")
        finally:
            drawing.cancel()
            _show(answer, thought, words)
            self.messages.append({"role": "assistant", "content": answer.text})
            self._figures.text = answer.figures

    async def _stream(self, body: Json, answer: "_Answer") -> None:
        asked = body | {"stream": True, "stream_options": {"include_usage": True}}
        async for event in self._context.api.stream("/v1/chat/completions", asked):
            answer.add(event)


class _Answer:
    def __init__(self) -> None:
        self.text = self.reasoning = ""
        self._began = time.monotonic()
        self._first: float | None = None
        self._last = self._began
        self._tokens: int | None = None

    def add(self, event: Json) -> None:
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            piece, reasoning = delta.get("content") or "", delta.get("reasoning") or ""
            if piece or reasoning:
                self._last = time.monotonic()
                self._first = self._first or self._last
            self.text += piece
            self.reasoning += reasoning
        if event.get("usage"):
            self._tokens = event["usage"]["completion_tokens"]

    @property
    def figures(self) -> str:
        """Return a phrase about the answer's timing."""
        if self._first is None:
            return "" if self._tokens is None else "The answer is empty."
        first = f"First token after {formats.seconds(self._first - self._began)}"
        if self._tokens is None or self._tokens < 2:
            return first
        return f"{first} · {self._tokens} tokens in {formats.seconds(self._last - self._began)}"


def _answer_bubble(who: str) -> tuple[TextElement, TextElement]:
    """Draw an empty answer; return the elements of its reasoning, which is hidden while there is none, and its text."""
    with div("said-by assistant"):
        tag("span", who, classes="muted small")
        thought = tag("div", "", classes="thought muted small", aria_label="Reasoning")
        thought.set_visibility(False)
        return thought, tag("div", "", classes="words")


def _show(answer: _Answer, thought: TextElement, words: TextElement) -> None:
    words.text = answer.text
    words.set_visibility(bool(answer.text) or not answer.reasoning)
    if answer.reasoning:
        thought.text = answer.reasoning
        thought.set_visibility(True)


def _bubble(who: str, text: str, role: str) -> TextElement:
    with div(f"said-by {role}"):
        tag("span", who, classes="muted small")
        return tag("div", text, classes="words")
