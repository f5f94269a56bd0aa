"""What the documents show to type or to write is possible: commands, options, settings, routes and files."""

import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from snippets import NOT_RUN, OTHER_SETTINGS, PAGES, ROOT, blocks

from loragate.cli.errors import CliError
from loragate.cli.main import app
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.settings.names import environment_names
from loragate.cli.supervisor.serve import check_combination
from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.openapi.document import openapi_document
from tests.cli.command_runner import run

OWN = {"LORAGATE_TEST_CACHE"}  # variables of the tests


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Return the page and the words of each command line that runs a program."""
    found = []
    for block in blocks("console"):
        for command, _ in block.commands:
            shown = re.search(rf"(?:^(?:\w+=\S+ )?|\$\(|\| )({program} [^|)]*)", command.replace("\\\n", " "))
            if shown:
                found.append((block.page, shlex.split(shown[1], comments=True)))
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
    for block in blocks(language):
        assert parse(block.text) is not None, block.page


def test_every_block_names_its_language() -> None:
    assert not blocks("")


def test_each_block_that_is_not_run_exists_and_has_a_test() -> None:
    for beginning, _, test in NOT_RUN:
        assert sum(block.beginning.startswith(beginning) for block in blocks("console", "python")) == 1, beginning
        path, name = test.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


def test_settings_files_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "loragate.toml"
    shown = [block for block in blocks("toml") if not block.text.startswith(OTHER_SETTINGS)]
    assert len(shown) >= 7
    for block in shown:
        file.write_text(block.text)
        check_combination(load(config=file, model="my-model", secret_key="a secret key for tests"))
        file.write_text(f"no_such_setting = 1\n{block.text}")
        with pytest.raises(CliError, match="no_such_setting"):
            load(config=file)


def test_the_unit_is_the_one_that_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, folder = tmp_path / "opt/loragate/bin/loragate", tmp_path / "srv/loragate"
    program.parent.mkdir(parents=True)
    program.touch()
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "opt/loragate"))
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("LOGNAME", "loragate")
    monkeypatch.chdir(folder)
    (command,) = (words for page, words in commands("loragate") if page == "docs/deploy.md" and words[1] == "init")
    run(*command[1:])
    (unit,) = blocks("ini")
    assert unit.text == Path("loragate.service").read_text().replace(str(tmp_path), "")


def test_programs_are_valid_python() -> None:
    programs = blocks("python")
    assert len(programs) >= 6
    for block in programs:
        compile(block.text, block.page, "exec")


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
