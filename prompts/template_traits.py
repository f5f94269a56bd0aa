"""What chat templates disagree about, told from their source."""

import re
from dataclasses import dataclass

_TESTS_FOR_NULL = re.compile(r"content\b['\"\]]*\s+is\s+(?:not\s+)?none", re.IGNORECASE)
_COUNTS_ID = re.compile(r"\bid\b['\"\]]*\s*\|\s*length\s*!=\s*9\b")


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """`null_content`: a message of calls alone has the content none, as it tests for it; else it is an empty string.

    `short_call_ids`: it refuses calls' ids that are not nine characters long, as Mistral's do.
    """

    null_content: bool
    short_call_ids: bool


def read_traits(source: str) -> TemplateTraits:
    """Of the template with this source."""
    return TemplateTraits(bool(_TESTS_FOR_NULL.search(source)), bool(_COUNTS_ID.search(source)))
