"""`loragate adapters` against the real gateway."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loragate.cli.main import app

from .running import ADMIN_KEY, real_gateway, write_adapter


def run(*arguments: str, status: int = 0, typed: str | None = None) -> Result:
    result = CliRunner().invoke(app, arguments, input=typed)
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with real_gateway(tmp_path) as url:
        monkeypatch.setenv("LORAGATE_BASE_URL", f"{url}/v1")  # as the openai client wants it
        run("tenants", "create", "acme", "--admin-key", ADMIN_KEY)
        monkeypatch.setenv("LORAGATE_API_KEY", run("keys", "create", "acme", "--admin-key", ADMIN_KEY).stdout.strip())
        yield


@pytest.mark.usefixtures("tenant")
def test_an_adapters_life(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "support-bot")
    first = run("adapters", "upload", str(folder))
    assert first.stdout.split("\t")[:3] == ["support-bot", "1", "2"]
    assert "uploading support-bot" in first.stderr
    second = run("adapters", "upload", str(folder), "--name", "support-bot", "--alias", "canary", "--json")
    assert json.loads(second.stdout)[0]["version"] == 2

    versions = [line.split("\t")[1] for line in run("adapters", "versions", "support-bot").stdout.splitlines()]
    assert versions == ["2", "1"]
    aliases = json.loads(run("adapters", "list", "--json").stdout)[0]["aliases"]
    assert aliases == {"canary": [{"version": 2, "weight": 1}], "default": [{"version": 1, "weight": 1}]}

    placed = json.loads(run("adapters", "alias", "support-bot", "default", "1=90", "2=10").stdout)
    assert placed["targets"] == [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]
    run("adapters", "alias", "support-bot", "default", "2")
    run("adapters", "alias", "support-bot", "canary", "2")

    run("adapters", "delete", "support-bot", "--version", "1", typed="n\n", status=1)
    assert run("adapters", "delete", "support-bot", "--version", "1", "--yes").stdout == "deleted support-bot:1\n"
    assert len(run("adapters", "versions", "support-bot").stdout.splitlines()) == 1
    run("adapters", "delete", "support-bot", "--yes")
    assert run("adapters", "list").stdout == ""


@pytest.mark.usefixtures("tenant")
def test_a_broken_adapter_is_refused_with_the_tensors_name(tmp_path: Path) -> None:
    refused = run("adapters", "upload", str(write_adapter(tmp_path / "broken", poison=True)), status=1)
    assert "lora_B" in refused.stderr
    assert "(request req_" in refused.stderr
    assert run("adapters", "list").stdout == ""


@pytest.mark.usefixtures("tenant")
def test_a_folder_without_the_files_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "bot")
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "is a pickle" in run("adapters", "upload", str(folder), status=2).stderr
    (folder / "adapter_config.json").unlink()
    assert "no adapter_config.json" in run("adapters", "upload", str(folder), status=2).stderr
    run("adapters", "upload", str(tmp_path / "nowhere"), status=2)


@pytest.mark.usefixtures("tenant")
@pytest.mark.parametrize("target", ["x", "1=", "=1", "1=x", "@1"])
def test_a_bad_target_is_named(target: str) -> None:
    assert target in run("adapters", "alias", "bot", "default", target, status=2).stderr


@pytest.mark.usefixtures("tenant")
def test_a_foreign_key_is_refused() -> None:
    assert "(request req_" in run("adapters", "list", "--api-key", "lg-nobody-nothing", status=1).stderr
