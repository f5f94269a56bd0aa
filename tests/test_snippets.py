"""What the documents show to type or to write is possible: commands, options, settings, routes and files."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from loragate.cli.main import app
from loragate.cli.settings.model import Settings
from loragate.cli.settings.names import environment_names
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.openapi.document import openapi_document

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/migrate/*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OWN = {"LORAGATE_TEST_CACHE"}  # variables of the tests


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Return the page and the text of each block in one of these languages."""
    return [
        (page.name, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for page in PAGES
        for indent, language, text in BLOCK.findall(page.read_text())
        if language in languages
    ]


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Return the page and the words of each command line that runs a program."""
    found = []
    for page, text in blocks("console", ""):
        for line in text.replace("\\\n", " ").splitlines():
            shown = re.search(rf"(?:^\$ |^|\$\(|\| )({program} [^|)]*)", line)
            if shown:
                found.append((page, shlex.split(shown[1], comments=True)))
    return found


def test_commands_exist_with_their_options_and_arguments() -> None:
    found = commands("loragate")
    assert len(found) > 40
    assert not [(page, wrong, words) for page, words in found if (wrong := misuse(words[1:]))]


def misuse(words: list[str]) -> str:
    """Return what is wrong with a command line; "" if nothing is."""
    command: Any = typer.main.get_command(app)
    while getattr(command, "commands", None) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    options = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
    options |= {"--version": None, "--help": None}
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    given = 0
    while words:
        word, *words = words
        name = word.partition("=")[0]
        if not word.startswith("-") or word == "-":
            given += 1
        elif name not in options:
            return f"no option {name}"
        elif options[name] is not None and not options[name].is_flag and "=" not in word:
            words = words[1:]
    return "too many arguments" if given > len(arguments) else ""


def test_the_action_has_valid_commands() -> None:
    jobs = yaml.safe_load((ROOT / "examples/publish-adapter.yml").read_text())["jobs"]
    lines = [line for step in jobs["publish"]["steps"] for line in step.get("run", "").splitlines()]
    typed = [shlex.split(line)[1:] for line in lines if line.startswith("loragate ")]
    assert len(typed) == 4
    assert [misuse(words) for words in typed] == [""] * 4


def test_misuse_is_noticed() -> None:
    assert misuse(["adapters", "canary", "support-bot", "--percent", "10"]) == ""
    assert misuse(["adapters", "canary", "support-bot", "--share", "10"]) == "no option --share"
    assert misuse(["adapters", "canari", "support-bot"]) == "too many arguments"


def test_variables_are_settings() -> None:
    known = set(environment_names(Settings)) | OWN
    named = {
        (page.name, name) for page in PAGES for name in re.findall(r"\bLORAGATE_[A-Z0-9_]*[A-Z0-9]\b", page.read_text())
    }
    assert len({name for _, name in named}) > 40
    assert not sorted((page, name) for page, name in named if name not in known)


@pytest.mark.parametrize(
    ("language", "parse"), [("toml", tomllib.loads), ("json", json.loads), ("yaml", yaml.safe_load)]
)
def test_files_are_valid(language: str, parse: Any) -> None:
    for page, text in blocks(language):
        assert parse(text) is not None, page


def test_programs_are_valid_python() -> None:
    programs = blocks("python")
    assert len(programs) >= 6
    for page, text in programs:
        compile(text, page, "exec")


def test_routes_exist(tmp_path: Path) -> None:
    config = GatewayConfig("sqlite:///nowhere.db", "file:///nowhere", b"secret", "unix:/nowhere", tmp_path)
    paths = [re.sub(r"\{\w+\}", "[^/]+", path) for path in openapi_document(create_app(config))["paths"]]
    known = re.compile("|".join(f"(?:{path})" for path in paths))
    asked = [
        (page, re.sub(r"^(https?://[^/]+|\$\w+)", "", word).partition("?")[0])
        for page, words in commands("curl")
        for word in words
        if re.match(r"https?://127\.|\$\w+/", word)
    ]
    assert len(asked) > 5
    assert not [each for each in asked if not known.fullmatch(each[1])]
