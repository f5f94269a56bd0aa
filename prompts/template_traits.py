"""Differences between chat templates, detected from their source."""

import re
from dataclasses import dataclass

_TESTS_FOR_NULL = re.compile(r"content\b['\"\]]*\s+is\s+(?:not\s+)?none", re.IGNORECASE)
_COUNTS_ID = re.compile(r"\bid\b['\"\]]*\s*\|\s*length\s*!=\s*9\b")


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """`null_content`: the template tests for a null content, so messages that only have calls get null instead of an
    empty string.

    `short_call_ids`: the template only accepts call ids of nine characters, as Mistral's do.
    """

    null_content: bool
    short_call_ids: bool


def read_traits(source: str) -> TemplateTraits:
    """Detect the traits of the template with this source."""
    return TemplateTraits(bool(_TESTS_FOR_NULL.search(source)), bool(_COUNTS_ID.search(source)))
