import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from loragate.cli.main import app

HEAVY = ("torch", "transformers", "sqlalchemy", "fastapi", "grpc", "pydantic_settings", "httpx", "loragate.gateway")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield (*path, name)
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = list(commands(typer.main.get_command(app)))


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from loragate.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"
    assert "serve" in printed


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"loragate {version('loragate')}\n"


def test_every_command_of_the_contract_exists() -> None:
    names = {" ".join(path) for path in ALL}
    assert names >= {
        "init", "serve", "engine", "engine-trace", "gateway", "panel", "chat", "doctor", "audit",
        "audit export", "audit verify",
        "adapters upload", "adapters list", "adapters versions", "adapters alias", "adapters delete",
        "adapters show", "adapters diff", "adapters canary", "adapters promote", "adapters rollback",
        "adapters restore", "adapters upload-all", "adapters import", "adapters download", "adapters check",
        "tenants create", "tenants list", "tenants show", "tenants update", "tenants delete",
        "finetune-worker", "finetune create", "finetune watch", "finetune list", "finetune cancel", "finetune pause",
        "finetune resume", "finetune checkpoints",
        "keys create", "keys list", "keys revoke", "keys rotate",
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_the_help_of_every_command_has_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"loragate {' '.join(path)}" in " ".join(result.stdout.split())


@pytest.mark.parametrize("arguments", [["serve", "--port", "x"], ["serve", "--nonsense"], ["nonsense"]])
def test_misuse_is_status_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert arguments[-1] in result.stderr or arguments[-2] in result.stderr


def test_serve_without_a_model_names_both_ways() -> None:
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "--model" in result.stderr
    assert "--demo" in result.stderr


def test_the_engine_alone_needs_a_model() -> None:
    result = CliRunner().invoke(app, ["engine"])
    assert result.exit_code == 2
    assert "--model" in result.stderr


def test_a_child_of_a_dead_process_ends_at_once() -> None:
    command = [sys.executable, "-m", "loragate.cli.main", "--parent", "1", "serve", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout == ""
