"""Differences between chat templates, detected from their source."""

import re
from dataclasses import dataclass

_TESTS_FOR_NULL = re.compile(r"content\b['\"\]]*\s+is\s+(?:not\s+)?none", re.IGNORECASE)
_COUNTS_ID = re.compile(r"\bid\b['\"\]]*\s*\|\s*length\s*!=\s*9\b")

_READS_PARTS = re.compile(r"type['\"\]]*\s*==\s*['\"]thinking['\"]")
_READS_REASONING = {
    name: re.compile(
        rf"(?:\.{name}\b(?!\s*\()|\[\s*['\"]{name}['\"]\s*\]|['\"]{name}['\"]\s+in\b|get\(\s*['\"]{name}['\"])"
    )
    for name in ("reasoning_content", "reasoning", "thinking")
}


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """`null_content`: the template tests for a null content, so messages that only have calls get null instead of an
    empty string.

    `short_call_ids`: the template only accepts call ids of nine characters, as Mistral's do.

    `reasoning_fields`: the names under which the template reads a message's reasoning. `reasoning_parts`: it reads the
    reasoning as a part of the content, of type "thinking", as Mistral's do.
    """

    null_content: bool
    short_call_ids: bool
    reasoning_fields: tuple[str, ...] = ()
    reasoning_parts: bool = False


def read_traits(source: str) -> TemplateTraits:
    """Detect the traits of the template with this source."""
    parts = bool(_READS_PARTS.search(source))
    return TemplateTraits(
        bool(_TESTS_FOR_NULL.search(source)),
        bool(_COUNTS_ID.search(source)),
        () if parts else tuple(name for name, pattern in _READS_REASONING.items() if pattern.search(source)),
        parts,
    )
