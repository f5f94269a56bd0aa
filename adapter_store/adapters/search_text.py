"""What searches look into: one folded text of an adapter's name, tags and description.

Three characters or more are found anywhere in it, through an index of trigrams. One or two would match nearly
everything, and no such index knows them: they are found where a word begins. For that every word stands once more at
the end of the text, on a line of its own that begins with a blank; what is searched for holds no line breaks.
"""

import re
import unicodedata

from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.errors import Invalid

MAX_SEARCH_LENGTH = 100
_TRIGRAM = 3
_WORD = re.compile(r"[^\W_]+")


def search_text(name: str, description: Description) -> str:
    """Of an adapter."""
    said = _folded("\n".join((name, *description.tags, description.text)))
    words = dict.fromkeys(_WORD.findall(said))
    return said + "".join(f"\n {word}" for word in words)


def sought(search: str) -> str | None:
    """What a text must contain to be found; None where everything is. Raises Invalid."""
    if len(search) > MAX_SEARCH_LENGTH or not search.isprintable():
        raise Invalid(f"`search` must be at most {MAX_SEARCH_LENGTH} printable characters.", param="search")
    folded = _folded(search.strip())
    if len(folded) < _TRIGRAM and _WORD.fullmatch(folded):
        return f" {folded}"
    return folded or None


def has_trigrams(text: str) -> bool:
    """An index of trigrams can find it."""
    return len(text) >= _TRIGRAM


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
