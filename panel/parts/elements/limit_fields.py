"""A form for limits, in which an empty field means unlimited."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from loragate.panel.api import Json
from loragate.panel.parts.elements.fields import number_field

LIMITS = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "max_concurrency": "Concurrent requests",
    "tokens_per_day": "Tokens per day",
    "tokens_per_month": "Tokens per month",
}
"""The limits of keys, adapters and tenants, with their labels."""


class LimitFields:
    """One field for each limit in `names`, which maps limits to labels."""

    def __init__(self, limits: Mapping[str, Any], names: Mapping[str, str] = LIMITS) -> None:
        self._fields: dict[str, ui.number] = {key: number_field(words, limits.get(key)) for key, words in names.items()}

    def body(self) -> Json:
        """Return the limits for a request; null means unlimited."""
        return {key: None if field.value is None else int(field.value) for key, field in self._fields.items()}
