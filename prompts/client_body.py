"""Bodies in the form of other servers' APIs, whose clients send more fields than this server acts on.

Fields that would not change the answer are accepted and have no effect, so that existing clients work unchanged. Fields
that would change it are refused with a message that says what to do instead, unless their value has no effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from pydantic import ConfigDict, model_validator

from loragate.prompts.validation import Body, field_error


@dataclass(frozen=True)
class Refused:
    """Why a field is refused. The values in `accepted` have no effect, and are accepted as null is."""

    why: str
    accepted: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ExtraFields:
    """Fields of a body that this server does not act on: those that are ignored, and those that are refused."""

    ignored: tuple[str, ...] = ()
    refused: Mapping[str, Refused] = field(default_factory=dict)

    def removed_from(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the body without these fields and without those that are null. Raise a field error for a refused
        one."""
        for name, refused in self.refused.items():
            value = document.get(name)
            if value is not None and value not in refused.accepted:
                raise field_error(name, refused.why)
        return {name: value for name, value in document.items() if value is not None and name not in self._names}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset({*self.ignored, *self.refused})

    def describe(self, schema: dict[str, Any]) -> None:
        """Add these fields to the JSON Schema of their body."""
        described = schema.setdefault("properties", {})
        described |= {name: {"description": "Accepted, without effect."} for name in self.ignored}
        for name, refused in self.refused.items():
            words = f"No other value is accepted: {refused.why}."
            described[name] = {"enum": [None, *refused.accepted], "description": words}


def _describe_extras(schema: dict[str, Any], body: type["ClientBody"]) -> None:
    body.extras.describe(schema)


class ClientBody(Body):
    """A body with `extras`. A field that is null counts as absent, also one that this server does not know."""

    model_config = ConfigDict(json_schema_extra=_describe_extras)
    extras: ClassVar[ExtraFields] = ExtraFields()

    @model_validator(mode="before")
    @classmethod
    def _drop_extras(cls, document: Any) -> Any:
        return cls.extras.removed_from(document) if isinstance(document, dict) else document
