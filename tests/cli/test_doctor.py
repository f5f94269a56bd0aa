import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loragate.cli.doctor import machine
from loragate.cli.doctor.finding import Status
from loragate.cli.main import app
from loragate.cli.supervisor.ports import listen


def findings(*arguments: str, status: int = 0) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exit_code == status, result.output
    return {finding["subject"]: finding for finding in json.loads(result.stdout)}


def test_it_looks_at_everything_and_a_plain_machine_is_fit() -> None:
    found = findings("--port", "0")
    assert set(found) == {
        "Python", "CPU features", "cores", "memory", "disk", "torch", "GPU", "Triton", "kernels",
        "database", "blobs", "Redis", "port",
    }  # fmt: skip
    assert not [finding for finding in found.values() if finding["status"] == "fail"]
    assert not Path(".loragate").exists(), "it changes nothing"


def test_whatever_is_not_ok_comes_with_advice() -> None:
    for finding in findings("--port", "0").values():
        assert finding["status"] == "ok" or finding["advice"]


def test_a_port_in_use_fails() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = str(listener.getsockname()[1])
        assert port in findings("--port", port, status=1)["port"]["found"]


def test_a_redis_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("LORAGATE_REDIS_URL", f"redis://127.0.0.1:{port}")
    assert findings("--port", "0", status=1)["Redis"]["status"] == "fail"


def test_workers_without_redis_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_WORKERS", "2")
    assert "LORAGATE_REDIS_URL" in findings("--port", "0", status=1)["Redis"]["advice"]


@pytest.mark.parametrize("url", ["mysql://db/x", "sqlite:////no/such/folder/x.db"])
def test_a_database_that_cannot_be_had_fails(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("LORAGATE_DATABASE_URL", url)
    assert findings("--port", "0", status=1)["database"]["status"] == "fail"


def test_an_unknown_blob_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_BLOB_URL", "nosuch://bucket")
    assert findings("--port", "0", status=1)["blobs"]["status"] == "fail"


def test_a_bad_setting_is_a_finding_not_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_PROT", "1")
    found = findings(status=1)
    assert "LORAGATE_PROT" in found["settings"]["found"]
    assert found["Python"]["status"] == "ok"


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        ({"avx512f", "avx512_bf16", "sse"}, Status.OK, "avx512_bf16, avx512f"),
        ({"asimd", "bf16"}, Status.OK, "asimd, bf16"),
        ({"avx512f"}, Status.WARN, "no bf16"),
        ({"avx2"}, Status.WARN, "no wide vectors"),
        (set(), Status.WARN, "no wide vectors"),
    ],
)
def test_cpu_features(flags: set[str], status: Status, words: str) -> None:
    finding = machine.check_cpu(frozenset(flags))
    assert finding.status is status
    assert words in finding.found


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.check_disk(tmp_path / "not" / "there").status is Status.FAIL


def test_a_person_gets_lines() -> None:
    result = CliRunner().invoke(app, ["doctor", "--port", "0"])
    assert "Python" in result.stdout
    assert "ok" in result.stdout
