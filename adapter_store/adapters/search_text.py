"""The text that searches match: an adapter's name, tags and description, case-folded.

Three or more characters are found anywhere in it, through a trigram index. One or two would match nearly everything,
and the index cannot find them, so they match the beginnings of words only. For this, every word is repeated at the end
of the text, on its own line that begins with a blank; search strings contain no line breaks.
"""

import re
import unicodedata

from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.errors import Invalid

MAX_SEARCH_LENGTH = 100
_TRIGRAM = 3
_WORD = re.compile(r"[^\W_]+")


def search_text(name: str, description: Description) -> str:
    """Return the text of an adapter."""
    folded = _folded("\n".join((name, *description.tags, description.text)))
    words = dict.fromkeys(_WORD.findall(folded))
    return folded + "".join(f"\n {word}" for word in words)


def sought(search: str) -> str | None:
    """Return the string that a text must contain; None if the search matches everything. Raise Invalid."""
    if len(search) > MAX_SEARCH_LENGTH or not search.isprintable():
        raise Invalid(f"`search` must be at most {MAX_SEARCH_LENGTH} printable characters.", param="search")
    folded = _folded(search.strip())
    if len(folded) < _TRIGRAM and _WORD.fullmatch(folded):
        return f" {folded}"
    return folded or None


def has_trigrams(text: str) -> bool:
    """Return whether the trigram index can find the text."""
    return len(text) >= _TRIGRAM


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
