"""`loragate adapters` against the real gateway."""

import json
from pathlib import Path

import pytest

from loragate.cli.client.aliases import shares, with_share
from loragate.cli.errors import CliError
from tests.cli.command_runner import as_new_tenant, run
from tests.cli.running import real_gateway, write_adapter


@pytest.mark.usefixtures("tenant")
def test_the_life_of_an_adapter(tmp_path: Path) -> None:
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
def test_a_broken_adapter_is_rejected_with_the_tensors_name(tmp_path: Path) -> None:
    rejected = run("adapters", "upload", str(write_adapter(tmp_path / "broken", poison=True)), status=1)
    assert "lora_B" in rejected.stderr
    assert "(request req_" in rejected.stderr
    assert run("adapters", "list").stdout == ""


@pytest.mark.usefixtures("tenant")
def test_a_folder_without_the_files_is_rejected_before_any_upload(tmp_path: Path) -> None:
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
def test_a_foreign_key_is_rejected() -> None:
    assert "(request req_" in run("adapters", "list", "--api-key", "lg-never-issued", status=1).stderr


@pytest.mark.usefixtures("tenant")
def test_an_adapter_is_shown_and_versions_are_compared(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "bot")
    run("adapters", "upload", str(folder))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 7, "lora_dropout": 0.5}))
    assert "bot@canary is now version 2" in run("adapters", "upload", str(folder), "--alias", "canary").stderr
    assert json.loads(run("adapters", "show", "bot").stdout)["latest_version"] == 2
    assert json.loads(run("adapters", "show", "bot", "--version", "1").stdout)["version"] == 1
    found = {
        row["field"]: (row["1"], row["2"])
        for row in json.loads(run("adapters", "diff", "bot", "1", "2", "--json").stdout)
    }
    assert found.pop("digest")[0] != found["created_at"][0]
    del found["created_at"]
    assert found == {"adapter_config.json: lora_alpha": (4, 7), "adapter_config.json: lora_dropout": (0.0, 0.5)}
    assert "(request req_" in run("adapters", "show", "nothing", status=1).stderr


def test_an_upload_without_an_engine_is_deferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.gateway.engine.adapter_probe._CONNECT_SECONDS", 0.1)
    with real_gateway(tmp_path, engine_runs=False) as url:
        as_new_tenant(url, monkeypatch)
        kept = run("adapters", "upload", str(write_adapter(tmp_path / "bot"))).stderr
        assert "version 1 is stored: it becomes bot@default as soon as" in kept
        assert json.loads(run("adapters", "show", "bot", "--version", "1").stdout)["status"] == "verifying"


@pytest.mark.usefixtures("tenant")
def test_an_alias_is_deleted_without_its_versions(tmp_path: Path) -> None:
    run("adapters", "upload", str(write_adapter(tmp_path / "bot")))
    run("adapters", "alias", "bot", "live", "1")
    assert "deleted bot@live" in run("adapters", "delete", "bot", "--alias", "live", "--yes").stdout
    assert set(json.loads(run("adapters", "show", "bot").stdout)["aliases"]) == {"default"}
    assert "point it elsewhere" in run("adapters", "delete", "bot", "--alias", "default", "--yes", status=1).stderr
    assert "give either" in run("adapters", "delete", "bot", "--alias", "x", "--version", "1", status=2).stderr


@pytest.mark.usefixtures("tenant")
def test_a_canary_gets_its_share_and_can_be_withdrawn(tmp_path: Path) -> None:
    for seed, more in enumerate(([], ["--alias", "canary"])):
        run("adapters", "upload", str(write_adapter(tmp_path / "bot", seed=seed)), *more)
    assert run("adapters", "canary", "bot").stdout == "bot@default: version 1: 90 %, version 2: 10 %\n"
    placed = json.loads(run("adapters", "canary", "bot", "--percent", "50", "--version", "2", "--json").stdout)
    assert placed["targets"] == [{"version": 1, "weight": 1}, {"version": 2, "weight": 1}]
    assert run("adapters", "rollback", "bot").stdout == "bot@default: version 1: 90 %, version 2: 10 %\n"
    assert run("adapters", "promote", "bot").stdout == "bot@default: version 2: 100 %\n"
    assert run("adapters", "promote", "bot", "--version", "1").stdout == "bot@default: version 1: 100 %\n"
    assert "already gets all requests" in run("adapters", "canary", "bot", "--version", "1", status=1).stderr
    assert "no alias nothing" in run("adapters", "canary", "bot", "--alias", "nothing", status=1).stderr
    for percent in ("0", "100", "ten"):
        run("adapters", "canary", "bot", "--percent", percent, status=2)


@pytest.mark.usefixtures("tenant")
def test_a_deleted_adapter_is_restored(tmp_path: Path) -> None:
    run("adapters", "upload", str(write_adapter(tmp_path / "bot")))
    run("adapters", "upload", str(tmp_path / "bot"))
    run("adapters", "delete", "bot", "--version", "1", "--yes")
    assert run("adapters", "restore", "bot", "--version", "1").stdout == "restored bot:1\n"
    run("adapters", "delete", "bot", "--yes")
    assert run("adapters", "restore", "bot").stdout == "restored bot\n"
    assert len(run("adapters", "versions", "bot").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("targets", "version", "percent", "expected"),
    [
        ({1: 1}, 2, 10, {1: 9, 2: 1}),
        ({1: 90, 2: 10}, 2, 50, {1: 1, 2: 1}),
        ({1: 3, 2: 1}, 3, 20, {1: 3, 2: 1, 3: 1}),
        ({4: 7}, 2, 1, {2: 1, 4: 99}),
    ],
)
def test_shares_are_percent(targets: dict[int, int], version: int, percent: int, expected: dict[int, int]) -> None:
    given = [{"version": each, "weight": weight} for each, weight in targets.items()]
    shared = with_share(given, version, percent)
    assert {target["version"]: target["weight"] for target in shared} == expected
    assert f"version {version}: {percent} %" in shares(shared)


def test_invalid_weights_are_rejected() -> None:
    given = [{"version": 1, "weight": (1 << 31) - 1}, {"version": 2, "weight": (1 << 31) - 2}]
    with pytest.raises(CliError, match="too large to be split"):
        with_share(given, 3, 7)
