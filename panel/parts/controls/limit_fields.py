"""Limits as a form: an empty field is unlimited."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from loragate.panel.api import Json
from loragate.panel.parts.controls.fields import number_field

LIMITS = {
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Tokens a minute",
    "max_concurrency": "Requests at once",
    "tokens_per_day": "Tokens a day",
    "tokens_per_month": "Tokens a month",
}
"""Of keys, adapters and tenants."""


class LimitFields:
    """`names` are the limits' with their words."""

    def __init__(self, limits: Mapping[str, Any], names: Mapping[str, str] = LIMITS) -> None:
        self._fields: dict[str, ui.number] = {key: number_field(words, limits.get(key)) for key, words in names.items()}

    def body(self) -> Json:
        """Null is unlimited."""
        return {key: None if field.value is None else int(field.value) for key, field in self._fields.items()}
