"""Tables as CSV (RFC 4180), for spreadsheets too."""

import csv
import io
from collections.abc import Iterable

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_lines(rows: Iterable[Iterable[object]]) -> bytes:
    """Rows of text and numbers. None is an empty cell."""
    lines = io.StringIO()
    csv.writer(lines).writerows([_cell(value) for value in row] for row in rows)
    return lines.getvalue().encode()


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front, so that it stays text."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
