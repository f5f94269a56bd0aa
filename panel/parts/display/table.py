"""Tables. On a phone, each row is a card."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from loragate.panel.parts.elements.tag import div, tag

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column. `cell` returns a text or draws elements."""

    title: str
    cell: Callable[[Row], Any]
    kind: str = ""  # number, end, break


def table(
    label: str, columns: Sequence[Column[Any]], rows: Iterable[Any], key: Callable[[Any], Any] = itemgetter("id")
) -> None:
    """Draw a table, with `label` as its name for screen readers. When it is redrawn, rows are matched by `key`."""
    with div("table-box", tabindex="0", role="region", aria_label=label), tag("table", classes="rows"):
        tag("caption", label, classes="visually-hidden")
        with tag("thead"), tag("tr"):
            for column in columns:
                with tag("th", column.title, classes=column.kind, scope="col"):
                    if not column.title:
                        tag("span", "Actions", classes="visually-hidden")
        with tag("tbody"):
            for row in rows:
                with tag("tr").mark(str(key(row))):
                    for column in columns:
                        _cell(column, row)


def _cell(column: Column[Any], row: Any) -> None:
    with tag("td", classes=column.kind, data_label=column.title):
        text = column.cell(row)
        if isinstance(text, str):
            tag("span", text)
