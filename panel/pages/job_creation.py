"""A new fine-tuning job: a file, what to begin with, and numbers that may stay as they are."""

from typing import Any

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.page import Here
from loragate.panel.parts.button import button
from loragate.panel.parts.dataset_pick import DatasetPick
from loragate.panel.parts.fields import choice_field, number_field, text_field
from loragate.panel.parts.region import Region
from loragate.panel.parts.say import attempt, wrong
from loragate.panel.parts.sheet import sheet
from loragate.panel.parts.tag import div, muted, tag


def create_sheet(here: Here) -> None:
    """Ends on the new job's page."""
    with sheet("A new fine-tuning job") as dialog:
        _Creation(here, dialog).draw()


class _Creation:
    def __init__(self, here: Here, dialog: ui.dialog) -> None:
        self._here = here
        self._dialog = dialog
        self._files: dict[str, str] = {}

    def draw(self) -> None:
        self._pick("training_file", "Training file", "Drop a file of examples, one JSON object a line.")
        with tag("details"):
            tag("summary", "A file to test with")
            self._pick("validation_file", "Validation file", "Not trained on: its loss says when to stop.")
        Region(self._models, self._fields)

    def _pick(self, field: str, label: str, words: str) -> None:
        def sent(status: int, document: Json) -> None:
            if status == 401:
                ui.navigate.to("/sign-in?ended=key")
            elif 200 <= status < 300:
                self._files[field] = document["id"]
            else:
                wrong((document.get("error") or {}).get("message", "The upload was cut: try it again."))

        DatasetPick(label, words, sent, lambda: self._files.pop(field, None))

    async def _models(self) -> list[str]:
        return [model["id"] for model in (await self._here.api.get("/v1/models"))["data"]]

    def _fields(self, models: list[str]) -> None:
        self._model = choice_field("Begin with", models, models[0] if models else None)
        self._suffix = text_field("Name", placeholder="support", hint="A part of the result's name")
        with tag("details"):
            tag("summary", "Numbers")
            with div("stack"):
                muted("Empty: chosen when the file has been read.", "small")
                with div("controls"):
                    self._numbers = {
                        "n_epochs": number_field("Epochs", least=1, most=50),
                        "batch_size": number_field("Batch size", least=1, most=256),
                        "learning_rate_multiplier": number_field(
                            "Learning rate, times", least=0.01, most=100, step=0.1
                        ),
                        "lora_rank": number_field("Rank", least=1, most=256),
                    }
        with div("row-of apart"):
            button("Cancel", self._dialog.close)
            button("Train", self._create, "primary")

    async def _create(self) -> None:
        if "training_file" not in self._files:
            wrong("Choose a training file first.")
            return
        made: list[Json] = []

        async def ask() -> None:
            made.append(await self._here.api.post("/v1/fine_tuning/jobs", self._body()))

        if await attempt(ask()):
            ui.navigate.to(path("fine-tuning", made[0]["id"]))

    def _body(self) -> Json:
        chosen: dict[str, Any] = {}
        for name, field in self._numbers.items():
            if field.value is not None:
                chosen[name] = float(field.value) if name == "learning_rate_multiplier" else int(field.value)
        body: Json = {"model": self._model.value, **self._files}
        if (self._suffix.value or "").strip():
            body["suffix"] = self._suffix.value.strip()
        return body | {"method": {"type": "supervised", "supervised": {"hyperparameters": chosen}}}
