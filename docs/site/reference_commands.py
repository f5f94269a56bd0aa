"""The reference of the commands, made from the command line itself."""

from collections.abc import Iterator
from typing import Any

import typer.main

from loragate.cli.main import app

HEAD = """\
# Commands

Look up a command and its options. Every option of a server is also a [setting](settings.md). `--help` shows the same.
"""


def page() -> str:
    """Return the page."""
    return HEAD + "\n".join(lines(typer.main.get_command(app), "loragate")) + "\n"


def lines(command: Any, path: str) -> Iterator[str]:
    """Yield the lines of a command, then those of the commands below it."""
    yield f"\n## {path}\n"
    yield (command.help or "").strip() + "\n"
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    if shown:
        yield "| | default | |\n|---|---|---|"
    for parameter in shown:
        yield f"| {names(parameter)} | {default(parameter)} | {cell(getattr(parameter, 'help', None) or '')} |"
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from lines(each, f"{path} {name}")


def names(parameter: Any) -> str:
    """Return how a parameter is given."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name}`"
    return ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))


def default(parameter: Any) -> str:
    """Return the default that the help shows."""
    shown = getattr(parameter, "show_default", None)
    return cell(shown) if isinstance(shown, str) else ""


def cell(text: str) -> str:
    """Return a text on one line of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
