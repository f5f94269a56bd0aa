"""Results on stdout: a table for a person, tab-separated lines for a pipe, JSON when asked."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERSION_COLUMNS = ("name", "version", "rank", "size_bytes", "digest", "created_at")


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """The named fields of each row; all fields in JSON."""
    if as_json:
        show_json(list(rows))
    elif sys.stdout.isatty():
        _show_table(rows, columns)
    else:
        for row in rows:
            print("\t".join(_cell(row.get(column)) for column in columns))


def show_json(value: Any) -> None:
    """Indented, in the server's own names."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_alias(alias: Mapping[str, Any], *, as_json: bool) -> None:
    """Which version gets which share of an alias' requests."""
    from loragate.cli.client.canary import shares

    if as_json:
        show_json(alias)
    else:
        print(f"{alias['name']}@{alias['alias']}: {shares(alias['targets'])}")


def _show_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
