"""The dialog for a new fine-tuning job: files, the model to start from, and hyperparameters."""

import asyncio
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from loragate.panel.api import Json, path
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.fields import choice_field, number_field, text_field
from loragate.panel.parts.elements.lines_pick import LinesPick
from loragate.panel.parts.elements.tag import div, muted, tag
from loragate.panel.parts.notify import notify_error, run_and_notify

_METHODS = {
    "supervised": "Learn from example answers (supervised)",
    "dpo": "Learn from preferred and rejected answers (DPO)",
    "classify": "Learn the labels of texts (classifier)",
}
_METHODS_BY_FORMAT = {
    "preference": "dpo",
    "text preference": "dpo",
    "labelled text": "classify",
    "labelled chat": "classify",
}
_FRACTIONS = ("learning_rate_multiplier", "beta")
_TOKEN_DIGITS = 10


@dataclass(frozen=True)
class _Choices:
    """The models that a job can start from, and the files that exist already."""

    models: list[str]
    files: dict[str, str]


def creation_dialog(context: PageContext) -> None:
    """Open the dialog. Creating the job leads to its page."""
    with open_dialog("New fine-tuning job") as dialog:
        _CreationDialog(context, dialog).draw()


def _token_ids(given: str) -> list[int | str]:
    """Return the numbers of a list; anything else stays as it is, for the server to reject."""
    parts = given.replace(",", " ").split()
    return [int(part) if part.isdecimal() and len(part) <= _TOKEN_DIGITS else part for part in parts]


class _CreationDialog:
    def __init__(self, context: PageContext, dialog: ui.dialog) -> None:
        self._context = context
        self._dialog = dialog
        self._files: dict[str, str] = {}
        self._uploading: set[str] = set()
        self._method = "supervised"
        self._method_field: ui.select | None = None

    def draw(self) -> None:
        self._pick("training_file", "Training file", "Drop a file of examples here, with one JSON object per line.")
        AsyncRegion(self._choices, self._fields)

    def _pick(self, field: str, label: str, words: str) -> None:
        def examined(format: str) -> None:
            self._files.pop(field, None)
            if format:
                self._uploading.add(field)
            if field == "training_file" and format:
                self._set_method(_METHODS_BY_FORMAT.get(format, "supervised"))

        def sent(status: int, document: Json) -> None:
            self._uploading.discard(field)
            if status == 401:
                ui.navigate.to("/sign-in?ended=key")
            elif 200 <= status < 300:
                self._files[field] = document["id"]
            else:
                notify_error((document.get("error") or {}).get("message", "The upload was interrupted. Try again."))

        LinesPick(label, words, examined, sent)

    def _set_method(self, method: str) -> None:
        self._method = method
        if self._method_field is not None:
            self._method_field.value = method

    async def _choices(self) -> _Choices:
        models, files = await asyncio.gather(
            self._context.api.get("/v1/models"), self._context.api.get("/v1/files", purpose="fine-tune", limit=100)
        )
        named = {file["id"]: f"{file['filename']}, {formats.size(file['bytes'])}" for file in files["data"]}
        return _Choices([model["id"] for model in models["data"]], named)

    def _fields(self, choices: _Choices) -> None:
        if choices.files:
            there = choice_field("Or an uploaded file", choices.files).props("clearable")
            there.on_value_change(lambda event: self._choose(event.value))
        with tag("details"):
            tag("summary", "Validation")
            self._pick(
                "validation_file",
                "Validation file",
                "These examples are not trained on. Their loss shows when to stop.",
            )
        self._model = choice_field("Start from", choices.models, choices.models[0] if choices.models else None)
        self._suffix = text_field("Name", placeholder="support", hint="A part of the resulting model's name")
        self._method_field = choice_field("Method", _METHODS, self._method)
        self._method_field.on_value_change(lambda event: self._set_method(event.value))
        with tag("details"):
            tag("summary", "Hyperparameters")
            with div("stack"):
                muted("Empty fields are chosen automatically once the file has been read.", "small")
                with div("controls"):
                    self._number_fields(self._method_field)
        with div("row-of apart"):
            button("Cancel", self._dialog.close)
            button("Create job", self._create, "primary")

    def _number_fields(self, method: ui.select) -> None:
        self._numbers = {
            "n_epochs": number_field("Epochs", minimum=1, maximum=50),
            "batch_size": number_field("Batch size", minimum=1, maximum=256),
            "learning_rate_multiplier": number_field("Learning rate multiplier", minimum=0.01, maximum=100, step=0.1),
            "lora_rank": number_field("Rank", minimum=1, maximum=256),
        }
        self._beta = number_field("Beta", minimum=0.01, maximum=10, step=0.05)
        self._beta.props["hint"] = "How close the model stays to where it starts"
        self._beta.bind_visibility_from(method, "value", value="dpo")
        self._invocation = text_field(
            "Invocation tokens", placeholder="11, 12", hint="Token ids that activate the adapter (aLoRA)"
        )
        self._invocation.bind_visibility_from(method, "value", value="supervised")

    def _choose(self, file: str | None) -> None:
        if file is None:
            self._files.pop("training_file", None)
        else:
            self._files["training_file"] = file

    async def _create(self) -> None:
        if self._uploading:
            notify_error("A file is still being uploaded. Start the job when it is complete.")
            return
        if "training_file" not in self._files:
            notify_error("Choose a training file first.")
            return
        made: list[Json] = []

        async def ask() -> None:
            made.append(await self._context.api.post("/v1/fine_tuning/jobs", self._body()))

        if await run_and_notify(ask()):
            ui.navigate.to(path("fine-tuning", made[0]["id"]))

    def _body(self) -> Json:
        method = self._method
        asked = self._numbers | ({"beta": self._beta} if method == "dpo" else {})
        chosen: dict[str, Any] = {}
        for name, field in asked.items():
            if field.value is not None:
                chosen[name] = float(field.value) if name in _FRACTIONS else int(field.value)
        if method == "supervised" and (given := (self._invocation.value or "").strip(" []")):
            chosen["alora_invocation_tokens"] = _token_ids(given)
        body: Json = {"model": self._model.value, **self._files}
        if (self._suffix.value or "").strip():
            body["suffix"] = self._suffix.value.strip()
        return body | {"method": {"type": method, method: {"hyperparameters": chosen}}}
