"""Results on stdout: a table on a terminal, tab-separated lines in a pipe, JSON on request."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

VERSION_COLUMNS = ("name", "version", "rank", "size_bytes", "digest", "created_at", "signer")


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print the given columns of each row, or all fields as JSON."""
    if as_json:
        show_json(list(rows))
    elif sys.stdout.isatty():
        _show_table(rows, columns)
    else:
        for row in rows:
            print("\t".join(_cell(row.get(column)) for column in columns))


def show_json(value: Any) -> None:
    """Print indented JSON with the server's field names."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    whole, *others = columns  # the column that commands take as an argument is never cut; the others are wrapped
    table = Table(Column(whole, no_wrap=True), box=None, pad_edge=False, header_style="bold")
    for column in others:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(column, row.get(column))) for column in columns))
    Console().print(table)


def _shown(column: str, value: Any) -> str:
    """Return a cell's text, with Unix seconds, as OpenAI's objects have them, as a local time."""
    if column.endswith("_at") and isinstance(value, int):
        return datetime.fromtimestamp(value).astimezone().isoformat(sep=" ", timespec="seconds")
    return _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
