"""A new fine-tuning job: a file, what to begin with, and numbers that may stay as they are."""

import asyncio
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.controls.dataset_pick import DatasetPick
from loragate.panel.parts.controls.fields import choice_field, number_field, text_field
from loragate.panel.parts.dialog import sheet
from loragate.panel.parts.display import formats
from loragate.panel.parts.display.tag import div, muted, tag
from loragate.panel.parts.notify import attempt, wrong

_METHODS = {"supervised": "Learn the answers (supervised)", "dpo": "Learn which of two answers is preferred (DPO)"}
_OF_PREFERENCES = ("preference", "text preference")
_FRACTIONS = ("learning_rate_multiplier", "beta")


@dataclass(frozen=True)
class _Choices:
    """What a job can begin with, and the files that are there already."""

    models: list[str]
    files: dict[str, str]


def create_sheet(here: Here) -> None:
    """Ends on the new job's page."""
    with sheet("A new fine-tuning job") as dialog:
        _Creation(here, dialog).draw()


class _Creation:
    def __init__(self, here: Here, dialog: ui.dialog) -> None:
        self._here = here
        self._dialog = dialog
        self._files: dict[str, str] = {}
        self._on_the_way: set[str] = set()
        self._method = "supervised"
        self._method_field: ui.select | None = None

    def draw(self) -> None:
        self._pick("training_file", "Training file", "Drop a file of examples, one JSON object a line.")
        Region(self._choices, self._fields)

    def _pick(self, field: str, label: str, words: str) -> None:
        def examined(format: str) -> None:
            self._files.pop(field, None)
            if format:
                self._on_the_way.add(field)
            if field == "training_file" and format:
                self._set_method("dpo" if format in _OF_PREFERENCES else "supervised")

        def sent(status: int, document: Json) -> None:
            self._on_the_way.discard(field)
            if status == 401:
                ui.navigate.to("/sign-in?ended=key")
            elif 200 <= status < 300:
                self._files[field] = document["id"]
            else:
                wrong((document.get("error") or {}).get("message", "The upload was cut: try it again."))

        DatasetPick(label, words, examined, sent)

    def _set_method(self, method: str) -> None:
        self._method = method
        if self._method_field is not None:
            self._method_field.value = method

    async def _choices(self) -> _Choices:
        models, files = await asyncio.gather(
            self._here.api.get("/v1/models"), self._here.api.get("/v1/files", purpose="fine-tune", limit=100)
        )
        named = {file["id"]: f"{file['filename']}, {formats.size(file['bytes'])}" for file in files["data"]}
        return _Choices([model["id"] for model in models["data"]], named)

    def _fields(self, choices: _Choices) -> None:
        if choices.files:
            there = choice_field("Or a file that is there", choices.files).props("clearable")
            there.on_value_change(lambda event: self._choose(event.value))
        with tag("details"):
            tag("summary", "Validation")
            self._pick("validation_file", "Validation file", "Not trained on: its loss says when to stop.")
        self._model = choice_field("Begin with", choices.models, choices.models[0] if choices.models else None)
        self._suffix = text_field("Name", placeholder="support", hint="A part of the result's name")
        self._method_field = choice_field("Method", _METHODS, self._method)
        self._method_field.on_value_change(lambda event: self._set_method(event.value))
        with tag("details"):
            tag("summary", "Hyperparameters")
            with div("stack"):
                muted("Empty: chosen when the file has been read.", "small")
                with div("controls"):
                    self._number_fields(self._method_field)
        with div("row-of apart"):
            button("Cancel", self._dialog.close)
            button("Train", self._create, "primary")

    def _number_fields(self, method: ui.select) -> None:
        self._numbers = {
            "n_epochs": number_field("Epochs", least=1, most=50),
            "batch_size": number_field("Batch size", least=1, most=256),
            "learning_rate_multiplier": number_field("Learning rate, times", least=0.01, most=100, step=0.1),
            "lora_rank": number_field("Rank", least=1, most=256),
        }
        self._beta = number_field("Beta", least=0.01, most=10, step=0.05)
        self._beta.props["hint"] = "How close it stays to what it was"
        self._beta.bind_visibility_from(method, "value", value="dpo")

    def _choose(self, file: str | None) -> None:
        if file is None:
            self._files.pop("training_file", None)
        else:
            self._files["training_file"] = file

    async def _create(self) -> None:
        if self._on_the_way:
            wrong("A file is still on its way: train once it is there.")
            return
        if "training_file" not in self._files:
            wrong("Choose a training file first.")
            return
        made: list[Json] = []

        async def ask() -> None:
            made.append(await self._here.api.post("/v1/fine_tuning/jobs", self._body()))

        if await attempt(ask()):
            ui.navigate.to(path("fine-tuning", made[0]["id"]))

    def _body(self) -> Json:
        method = self._method
        asked = self._numbers | ({"beta": self._beta} if method == "dpo" else {})
        chosen: dict[str, Any] = {}
        for name, field in asked.items():
            if field.value is not None:
                chosen[name] = float(field.value) if name in _FRACTIONS else int(field.value)
        body: Json = {"model": self._model.value, **self._files}
        if (self._suffix.value or "").strip():
            body["suffix"] = self._suffix.value.strip()
        return body | {"method": {"type": method, method: {"hyperparameters": chosen}}}
