"""An adapter's description for people: tags and a text."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.adapter_store.errors import Invalid

MAX_TAGS = 32
MAX_TAG_LENGTH = 64
MAX_DESCRIPTION_BYTES = 2048
_CONTROLS = frozenset({"Cc", "Cs"})  # Unicode categories: controls, lone surrogates
_LAYOUT = frozenset("\n\r\t")


@dataclass(frozen=True)
class Description:
    """Tags, sorted and without repeats, and a text. `described` checks both."""

    tags: tuple[str, ...] = ()
    text: str = ""


EMPTY_DESCRIPTION = Description()


def described(before: Description, tags: Iterable[str] | None, text: str | None) -> Description:
    """Return the description with the given parts replaced, each as a whole. Raise Invalid."""
    return Description(
        before.tags if tags is None else _checked_tags(tags), before.text if text is None else _checked_text(text)
    )


def _checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    unique = sorted(set(tags))
    if len(unique) > MAX_TAGS:
        raise Invalid(f"`tags` must have at most {MAX_TAGS} entries.", param="tags")
    for tag in unique:
        check_tag(tag, param="tags")
    return tuple(unique)


def check_tag(tag: str, *, param: str) -> None:
    """Raise Invalid unless the tag is valid; it has no comma, since commas separate tags in one field."""
    if not 1 <= len(tag) <= MAX_TAG_LENGTH or "," in tag or not tag.isprintable() or tag != tag.strip():
        raise Invalid(
            f"`{param}`: a tag is 1 to {MAX_TAG_LENGTH} printable characters without commas, and without blanks at "
            "its ends.",
            param=param,
        )


def _checked_text(text: str) -> str:
    if any(unicodedata.category(character) in _CONTROLS and character not in _LAYOUT for character in text):
        raise Invalid("`description` must not hold control characters.", param="description")
    if len(text.encode()) > MAX_DESCRIPTION_BYTES:
        raise Invalid(f"`description` must not be longer than {MAX_DESCRIPTION_BYTES} bytes.", param="description")
    return text
