"""The playground of classifiers: a text, and its labels as bars."""

from typing import Any

from nicegui import ui

from loragate.panel.api import ApiError, Json, SignedOut
from loragate.panel.pages.page import PageContext
from loragate.panel.pages.playground.code import as_curl
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.code_block import code_block
from loragate.panel.parts.display.empty import empty
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import area_field, choice_field
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw

_PATH = "/v1/classify"
_MAX_LABELS = 20  # those with the highest scores
_MAX_TOKENS = 500
_EXAMPLE = "My card was charged twice."


def draw(context: PageContext) -> None:
    """Draw the page once the adapters are known."""

    async def models() -> list[str]:
        return [model["id"] for model in (await context.api.get("/v1/models"))["data"]]

    with div("head"):
        heading("Classify", "Read a text's labels, by an adapter with a head for them.")
    AsyncRegion(models, lambda found: _Classify(context, found).draw())


class _Classify:
    def __init__(self, context: PageContext, models: list[str]) -> None:
        self._context = context
        self._models = models
        self._model = context.query.get("model", "") or next(reversed(models), "")

    def draw(self) -> None:
        if not self._models:
            with empty(
                "o_label", "No models yet", "The engine has not reported its models yet. Try again in a moment."
            ):
                link("Try again", "/classify", "button")
            return
        choices = dict.fromkeys([*self._models, self._model])
        with div("card"), div("stack"):
            model = choice_field(
                "Model", {name: name for name in choices}, self._model, with_input=True, new_value_mode="add-unique"
            )
            model.on_value_change(self._choose)
            self._text = area_field("Text", rows=4, placeholder=_EXAMPLE)
            self._text.on_value_change(lambda _: self._show_code())
            with div("row-of"):
                button("Classify", self._ask, "primary")
        self._result = div("stack", role="status")
        self._code = div("stack")
        self._show_code()

    def _choose(self, event: Any) -> None:
        self._model = event.value or ""
        self._show_code()

    @property
    def _body(self) -> Json:
        return {"model": self._model, "input": self._text.value or _EXAMPLE}

    async def _ask(self) -> None:
        try:
            answer = await self._context.api.post(_PATH, self._body)
        except SignedOut:
            ui.navigate.to("/sign-in?ended=key")
        except ApiError as failure:
            with keyed_redraw(self._result), div("notice bad", role="alert"):
                tag("p", failure.message, classes="grow")
        else:
            with keyed_redraw(self._result), tag("section", classes="card", aria_label="Labels"), div("stack"):
                _show(answer)

    def _show_code(self) -> None:
        with keyed_redraw(self._code), tag("details", classes="card"):
            tag("summary", "This request as code")
            with div("stack"):
                code_block(as_curl(self._context.api.base_url, self._body, _PATH), "curl")


def _show(answer: Json) -> None:
    (item,) = answer["data"]
    tag("h2", answer["model"], classes="break")
    if "tokens" in item:
        _tokens(item["tokens"])
        return
    best = sorted(zip(answer["labels"], item["probs"], strict=True), key=lambda pair: -pair[1])
    for label, score in best[:_MAX_LABELS]:
        _bar(label, score)
    if len(best) > _MAX_LABELS:
        muted(f"{len(best) - _MAX_LABELS} more labels have lower scores.", "small")


def _bar(label: str, score: float) -> None:
    share = min(max(score, 0.0), 1.0)  # logits of a regression may be any number
    with div("stack tight"):
        with div("row-of apart"):
            tag("span", label, classes="break")
            tag("span", f"{score:.3f}", classes="number")
        with div("meter", role="img", aria_label=f"{label}: {score:.3f}"):
            div().style(f"width: {share:.1%}")


def _tokens(tokens: list[Json]) -> None:
    with tag("table"):
        with tag("thead"), tag("tr"):
            for name in ("Token", "Label", "Score"):
                tag("th", name)
        with tag("tbody"):
            for token in tokens[:_MAX_TOKENS]:
                with tag("tr"):
                    tag("td", token["token"], classes="break")
                    tag("td", token["label"], classes="break")
                    tag("td", f"{token['score']:.3f}", classes="number")
    if len(tokens) > _MAX_TOKENS:
        muted(f"{len(tokens) - _MAX_TOKENS} more tokens are not shown.", "small")
