"""The playground: a chat with one model, or with two on the same prompts."""

import asyncio
from dataclasses import dataclass
from typing import Any

from nicegui import background_tasks

from loragate.panel.api import Json
from loragate.panel.pages.page import PageContext
from loragate.panel.pages.playground.code import as_curl, as_python
from loragate.panel.pages.playground.side import Side
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.code_block import code_block
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import area_field, choice_field, number_field
from loragate.panel.parts.elements.slider import slider
from loragate.panel.parts.elements.tag import div, link, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw

_NO_MODEL = ""


@dataclass
class Sampling:
    """The parameters of a request, without its messages."""

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None
    system: str = ""

    def body(self, model: str, messages: list[Json]) -> Json:
        """Return the body for `/v1/chat/completions`, without streaming."""
        system = [{"role": "system", "content": self.system}] if self.system.strip() else []
        given: Json = {"model": model, "messages": [*system, *messages], "max_tokens": self.max_tokens}
        given |= {"temperature": self.temperature, "top_p": self.top_p}
        return given if self.seed is None else given | {"seed": self.seed}


def draw(context: PageContext) -> None:
    """Draw the page once the models are known."""

    async def models() -> list[str]:
        return [model["id"] for model in (await context.api.get("/v1/models"))["data"]]

    with div("head"):
        heading("Playground", "Chat with a model, or compare the answers of two models side by side.")
    AsyncRegion(models, lambda found: _Playground(context, found).draw())


class _Playground:
    def __init__(self, context: PageContext, models: list[str]) -> None:
        self._context = context
        self._models = models
        self._sampling = Sampling()
        self._answering: list[asyncio.Task[Any]] = []
        wanted = context.query.get("model", "")
        self._first = Side(context, wanted or models[0]) if models else None
        self._second = Side(context, _NO_MODEL)

    def draw(self) -> None:
        if self._first is None:
            with empty(
                "o_forum", "No models yet", "The engine has not reported its models yet. Try again in a moment."
            ):
                link("Try again", "/playground", "button")
            return
        with div("card"), div("controls"):
            self._choice("Model", self._first, "")
            self._choice("Compare with", self._second, "none")
        with div("sides"):
            self._first.draw("First answer")
            self._second.draw("Second answer")
        with div("card"), div("stack"):
            with div("ask"):
                self._prompt = area_field("Your message", rows=2, placeholder="What would you like to know?")
                self._prompt.on("keydown.enter.exact.prevent", self._ask, args=[])
                with div("row-of"):
                    self._send = button("Send", self._ask, "primary")
                    self._stop = button("Stop", self._end, "")
                    self._stop.set_visibility(False)
            with div("row-of apart"):
                tag("span", "Enter sends the message, Shift+Enter starts a new line.", classes="muted small")
                button("New chat", self._restart, "small quiet")
        self._controls()
        self._code = div("stack")
        self._show_code()

    def _choice(self, label: str, side: Side, nothing: str) -> None:
        choices = ({_NO_MODEL: nothing} if nothing else {}) | {model: model for model in self._models}
        if side.model and side.model not in choices:
            choices[side.model] = side.model
        field = choice_field(label, choices, side.model, with_input=True, new_value_mode="add-unique")

        def choose(event: Any) -> None:
            side.choose(event.value or _NO_MODEL)
            self._show_code()

        field.on_value_change(choose)

    def _controls(self) -> None:
        with div("card"), div("stack"):
            tag("h2", "Sampling")
            with div("controls"):
                self._slider("Temperature", "temperature", 0, 2, 0.05)
                self._slider("Top p", "top_p", 0.05, 1, 0.05)
                maximum = number_field("Max tokens", self._sampling.max_tokens, minimum=1)
                seed = number_field("Seed")
            system = area_field("System message", rows=2)
        maximum.on_value_change(lambda event: self._set(max_tokens=int(event.value or 256)))
        seed.on_value_change(lambda event: self._set(seed=None if event.value is None else int(event.value)))
        system.on_value_change(lambda event: self._set(system=event.value or ""))

    def _slider(self, label: str, name: str, minimum: float, maximum: float, step: float) -> None:
        def move(value: float) -> None:
            words.text = f"{value:.2f}"
            self._set(**{name: value})

        with div("ruled"):
            with div("row-of"):
                tag("span", label)
                words = tag("span", f"{getattr(self._sampling, name):.2f}", classes="number")
            slider(label, getattr(self._sampling, name), move, minimum=minimum, maximum=maximum, step=step)

    def _set(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self._sampling, name, value)
        self._show_code()

    @property
    def _sides(self) -> list[Side]:
        return [side for side in (self._first, self._second) if side is not None and side.model]

    async def _ask(self) -> None:
        prompt = (self._prompt.value or "").strip()
        if not prompt or self._answering:
            return
        self._prompt.value = ""
        self._busy(True)
        asking = (side.ask(prompt, self._sampling.body) for side in self._sides)
        self._answering = [background_tasks.create(each) for each in asking]
        try:
            await asyncio.gather(*self._answering, return_exceptions=True)
        finally:
            self._answering = []
            self._busy(False)
            self._show_code()

    def _end(self) -> None:
        for task in self._answering:
            task.cancel()

    def _restart(self) -> None:
        self._end()
        for side in (self._first, self._second):
            if side is not None:
                side.restart()

    def _busy(self, busy: bool) -> None:
        self._send.set_visibility(not busy)
        self._stop.set_visibility(busy)

    def _show_code(self) -> None:
        assert self._first is not None
        url = self._context.api.base_url
        messages = self._first.messages or [{"role": "user", "content": "What would you like to know?"}]
        asked = [each for each in messages if each["role"] != "assistant"][-1:]
        body = self._sampling.body(self._first.model, asked)
        with keyed_redraw(self._code), tag("details", classes="card"):
            tag("summary", "This request as code")
            with div("stack"):
                code_block(as_curl(url, body), "curl")
                code_block(as_python(url, body), "Python")
