"""The reference of the settings, made from their definitions; what each does is on the pages that name it."""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from loragate.cli.settings.model import PREFIX, Settings

DOCS = Path(__file__).parents[1]
HEAD = """\
# Settings

Look up a setting's names and its default. An option of `loragate serve` wins over the variable, and the variable over
the line in `loragate.toml`; the last column lists the pages that describe it.

| in the file | variable | default | |
|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    pages = {page.relative_to(DOCS).as_posix(): page.read_text() for page in sorted(DOCS.glob("*.md"))}
    return HEAD + "".join(f"{row(name, default, pages)}\n" for name, default in settings(Settings))


def settings(section: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting's name in the file and its default."""
    for name, kind, default in defined(section):
        if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel)):
            yield from settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, default


def defined(section: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the type and the default of each field of a section."""
    if issubclass(section, BaseModel):
        for name, field in section.model_fields.items():
            yield name, field.annotation, None if field.default is PydanticUndefined else field.default
    else:
        for each in fields(section):
            made = each.default_factory() if each.default_factory is not MISSING else None
            yield each.name, each.type, made if each.default is MISSING else each.default


def row(name: str, default: Any, pages: dict[str, str]) -> str:
    """Return the line of one setting."""
    variable = PREFIX + name.upper().replace(".", "__")
    named = re.compile(rf"`{re.escape(name)}\b|\b{variable}\b")
    links = [f"[{page.removesuffix('.md')}](../{page})" for page, text in pages.items() if named.search(text)]
    return f"| `{name}` | `{variable}` | {shown(default)} | {', '.join(links)} |"


def shown(default: Any) -> str:
    """Return a default as the file would have it."""
    if default is None or default in ((), ""):
        return ""
    if hasattr(default, "value"):
        default = default.value
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
