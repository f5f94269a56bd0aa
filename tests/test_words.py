"""The words of a private dialect stay out of everything that people read."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from loragate.cli.main import app
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.openapi.document import openapi_document

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PANEL = sorted([*ROOT.glob("panel/**/*.py"), *ROOT.glob("panel/**/*.js"), *ROOT.glob("panel/**/*.html")])
CODE = sorted(
    path
    for path in ROOT.glob("[a-z]*/**/*.py")
    if not {"migrations", "build"} & set(path.parts) and path != Path(__file__)
)
DIALECT = re.compile(
    r"\b(told|nobody|who(m)?ever|whatever|whichever|anew|newcomers?"
    r"|turn(ed|s|ing)? away|let(s|ting)? go|lives? of|in words)\b",
    re.IGNORECASE,
)


def found_in(text: str) -> list[str]:
    """Return each word of the dialect with the text around it."""
    return [text[max(0, found.start() - 40) : found.end() + 30] for found in DIALECT.finditer(text)]


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text of a JSON document, its examples included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_in(each)


def help_texts(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Yield the help of a command, of its options, and of the commands below it."""
    yield path, command.help or ""
    for parameter in command.params:
        panel = getattr(parameter, "rich_help_panel", None)
        yield f"{path} {parameter.name}", f"{getattr(parameter, 'help', None) or ''} {panel or ''}"
    for name, each in getattr(command, "commands", {}).items():
        yield from help_texts(each, f"{path} {name}")


def texts_of_program(path: Path) -> list[str]:
    """Return the string literals of a Python file, docstrings included; the whole text of other files."""
    if path.suffix != ".py":
        return [path.read_text()]
    tree = ast.parse(path.read_text())
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def as_words(name: str) -> str:
    """Return a name with spaces between its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)


def found_in_code(text: str) -> list[str]:
    """Return the words of the dialect in comments, string literals and names of a Python file."""
    if not found_in(as_words(text)):  # which is quicker, but also finds `word in words`
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    texts = [
        each.string if each.type in (tokenize.COMMENT, tokenize.STRING) else as_words(each.string) for each in tokens
    ]
    return [found for text in texts for found in found_in(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents(page: Path) -> None:
    assert found_in(page.read_text()) == []


def test_the_openapi_document(tmp_path: Path) -> None:
    config = GatewayConfig(f"sqlite:///{tmp_path}/loragate.db", "file:///nowhere", "secret", "unix:/nowhere", tmp_path)
    document = json.loads(json.dumps(openapi_document(create_app(config))))
    assert [found for text in strings_in(document) for found in found_in(text)] == []


def test_help() -> None:
    texts = list(help_texts(typer.main.get_command(app), "loragate"))
    assert len(texts) > 100
    assert [(path, found) for path, text in texts for found in found_in(text)] == []


@pytest.mark.parametrize("path", PANEL, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_panel(path: Path) -> None:
    assert [found for text in texts_of_program(path) for found in found_in(text)] == []


def test_code() -> None:
    assert len(CODE) > 1000
    assert [(path.name, found) for path in CODE for found in found_in_code(path.read_text())] == []


def test_a_word_of_the_dialect_is_found() -> None:
    assert found_in("Nobody is told.") == ["Nobody is told.", "Nobody is told."]
    assert found_in("The request is rejected.") == []
    assert len(found_in_code('def test_nobody_waits():  # whoever comes\n    """Told."""\n    BeTold = 1\n')) == 4
    assert found_in_code("[word for word in words]") == []
