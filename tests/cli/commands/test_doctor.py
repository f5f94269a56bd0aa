import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.core import url_to_fs
from private_postgres import private_postgres
from redis_server import RedisServer
from s3_server import s3_server
from typer.testing import CliRunner

from loragate.adapter_store.database.schema import upgrade
from loragate.cli.doctor import machine
from loragate.cli.doctor.database import ConnectionCapacity, connections_finding, durability_findings
from loragate.cli.doctor.finding import Status, clock_finding
from loragate.cli.doctor.gpu_kernels import capability_finding, compiler_finding
from loragate.cli.doctor.redis import redis_finding
from loragate.cli.main import app
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.ports import listen


def findings(*arguments: str, status: int = 0) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exit_code == status, result.output
    return {finding["subject"]: finding for finding in json.loads(result.stdout)}


def test_all_checks_run_and_pass_on_a_plain_machine() -> None:
    found = findings("--port", "0")
    assert set(found) == {
        "Python", "CPU features", "cores", "memory", "disk", "open files", "torch", "GPU", "Triton", "kernels",
        "database", "blobs", "Redis", "port", "training sandbox",
    }  # fmt: skip
    assert not [finding for finding in found.values() if finding["status"] == "fail"]
    assert not Path(".loragate").exists(), "it changes nothing"


def test_every_finding_that_is_not_ok_has_advice() -> None:
    for finding in findings("--port", "0").values():
        assert finding["status"] == "ok" or finding["advice"]


def test_a_gpu_needs_a_compiler_headers_and_a_folder(tmp_path: Path) -> None:
    """Triton would fail at the first launch, long after the start."""
    tools, headers, cache = tmp_path / "bin", tmp_path / "include", tmp_path / "cache"
    environment = {"PATH": str(tools), "TRITON_CACHE_DIR": str(cache / "triton")}
    for folder in (tools, headers, cache):
        folder.mkdir()
    assert "no C compiler" in compiler_finding(environment, headers).found
    (tools / "gcc").write_text("")
    (tools / "gcc").chmod(0o755)
    assert "no Python.h" in compiler_finding(environment, headers).found
    (headers / "Python.h").write_text("")
    found = compiler_finding(environment, headers)
    assert (found.status, str(cache) in found.found) == (Status.OK, True)
    assert compiler_finding({**environment, "CC": "icc"}, headers).found == "no C compiler (icc)"
    (cache / "triton").write_text("a file")
    (cache / "triton").chmod(0o444)
    if os.getuid():
        assert "not writable" in compiler_finding(environment, headers).found


@pytest.mark.parametrize(("capability", "status"), [((7, 5), Status.FAIL), ((8, 0), Status.OK), ((12, 0), Status.OK)])
def test_the_kernels_need_a_gpu_of_8_0(capability: tuple[int, int], status: Status) -> None:
    assert capability_finding("GPU", capability).status is status


def test_a_signers_file_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_SIGNATURES__SIGNERS", '[{"name": "acme", "public_key": "none.pub"}]')
    finding = findings("--port", "0", status=1)["signatures"]
    assert "none.pub of 'acme' cannot be used" in finding["found"]


def test_a_port_in_use_fails() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = str(listener.getsockname()[1])
        assert port in findings("--port", port, status=1)["port"]["found"]


def test_an_unreachable_redis_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("LORAGATE_REDIS_URL", f"redis://127.0.0.1:{port}")
    assert findings("--port", "0", status=1)["Redis"]["status"] == "fail"


@pytest.mark.parametrize("name", ["LORAGATE_WORKERS", "LORAGATE_REPLICAS"])
def test_several_processes_without_redis_fail(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "2")
    finding = findings("--port", "0", status=1)["Redis"]
    assert finding["status"] == "fail"
    assert name in finding["found"]
    assert "LORAGATE_REDIS_URL" in finding["advice"]


def test_replicas_need_shared_services(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer) -> None:
    monkeypatch.setenv("LORAGATE_REPLICAS", "2")
    monkeypatch.setenv("LORAGATE_REDIS_URL", redis_server.url)
    found = findings("--port", "0", status=1)
    for subject, status, setting in (
        ("database", "fail", "LORAGATE_DATABASE_URL"),
        ("secret key", "fail", "LORAGATE_SECRET_KEY"),
        ("blobs", "fail", "LORAGATE_BLOB_URL"),
    ):
        assert found[subject]["status"] == status
        assert setting in found[subject]["advice"]
    assert found["Redis"]["status"] == found["clock"]["status"] == "ok"


def test_workers_on_sqlite_take_turns(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer) -> None:
    monkeypatch.setenv("LORAGATE_WORKERS", "2")
    monkeypatch.setenv("LORAGATE_REDIS_URL", redis_server.url)
    finding = findings("--port", "0")["database"]
    assert (finding["status"], "LORAGATE_WORKERS" in finding["found"]) == ("warn", True)


def test_a_redis_that_may_lose_data_is_a_warning(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer) -> None:
    monkeypatch.setenv("LORAGATE_REDIS_URL", redis_server.url)
    with redis_server.client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            finding = findings("--port", "0")["Redis"]
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")
    assert finding["status"] == "warn"
    assert "allkeys-lru" in finding["found"]
    assert "maxmemory-policy" in finding["advice"]


@pytest.mark.parametrize(
    ("version", "seconds", "status"),
    [("7.2.5", 0.001, Status.OK), ("6.2.1", 0.001, Status.FAIL), ("8.0", 0.2, Status.WARN)],
)
def test_an_old_or_distant_redis_is_a_warning(version: str, seconds: float, status: Status) -> None:
    assert redis_finding({"redis_version": version}, seconds).status is status


@pytest.mark.parametrize(("workers", "used", "status"), [(1, 0, Status.OK), (6, 20, Status.WARN), (7, 0, Status.FAIL)])
def test_connections_are_computed(workers: int, used: int, status: Status) -> None:
    finding = connections_finding(Settings(workers=workers), ConnectionCapacity(97, used))
    assert finding.status is status
    assert status is Status.OK or "max_connections" in finding.advice
    assert f"{workers} workers" in finding.found


def test_the_limits_of_a_postgres_are_reported(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer) -> None:
    monkeypatch.setenv("LORAGATE_REDIS_URL", redis_server.url)
    with private_postgres() as server:
        url = server.url("postgres")
        asyncio.run(upgrade(url))
        monkeypatch.setenv("LORAGATE_DATABASE_URL", url)
        found = findings("--port", "0")
        assert found["database"]["status"] == found["connections"]["status"] == "ok"
        assert "197 allowed" in found["connections"]["found"]
        assert "durability" not in found
        asyncio.run(server.run("ALTER SYSTEM SET synchronous_commit = off"))
        asyncio.run(server.run("SELECT pg_reload_conf()"))
        assert findings("--port", "0")["durability"]["status"] == "warn"
        monkeypatch.setenv("LORAGATE_WORKERS", "14")
        rejected = findings("--port", "0", status=1)["connections"]
        assert rejected["status"] == "fail"
        assert "LORAGATE_WORKERS" in rejected["advice"]


def test_a_postgres_that_acknowledges_too_early_is_warned_of() -> None:
    (finding,) = durability_findings("off")
    assert finding.status is Status.WARN
    assert "synchronous_commit" in finding.advice
    for mode in ("on", "local", "remote_write", "remote_apply"):
        assert durability_findings(mode) == []


@pytest.mark.parametrize(
    ("ahead", "status", "words"),
    [(0.3, Status.OK, "agrees with Redis"), (90, Status.WARN, "behind Redis"), (-90, Status.WARN, "ahead of Redis")],
)
def test_clocks_that_differ_are_reported(ahead: float, status: Status, words: str) -> None:
    finding = clock_finding("Redis", ahead)
    assert finding.status is status
    assert words in finding.found


def test_an_unreachable_collector_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("LORAGATE_TRACING__ENDPOINT", f"http://127.0.0.1:{port}")
        assert findings("--port", "0")["traces"]["status"] == "ok"
    finding = findings("--port", "0")["traces"]
    assert finding["status"] == "warn"
    assert "LORAGATE_TRACING__ENDPOINT" in finding["advice"]


@pytest.mark.parametrize("url", ["mysql://db/x", "sqlite:////no/such/folder/x.db"])
def test_an_unreachable_database_fails(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("LORAGATE_DATABASE_URL", url)
    assert findings("--port", "0", status=1)["database"]["status"] == "fail"


def test_an_unknown_blob_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_BLOB_URL", "nosuch://bucket")
    assert findings("--port", "0", status=1)["blobs"]["status"] == "fail"


def test_a_bucket_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        url = server.new_url()
        monkeypatch.setenv("LORAGATE_BLOB_URL", url)
        assert "writable" in findings("--port", "0")["blobs"]["found"]
        fs, root = url_to_fs(url, use_listings_cache=False)
        assert fs.find(root) == []
        monkeypatch.setenv("LORAGATE_BLOB_URL", "s3://a-bucket-that-is-not-there/prefix")
        rejected = findings("--port", "0", status=1)["blobs"]
    assert rejected["status"] == "fail"
    assert "NoSuchBucket" in rejected["found"] or "bucket" in rejected["found"]
    assert "LORAGATE_BLOB_URL" in rejected["advice"]


def test_a_bad_setting_is_a_finding_and_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ({"avx2"}, Status.WARN, "no wide vector instructions"),
        (set(), Status.WARN, "no wide vector instructions"),
    ],
)
def test_cpu_features(flags: set[str], status: Status, words: str) -> None:
    finding = machine.check_cpu(frozenset(flags))
    assert finding.status is status
    assert words in finding.found


def test_a_folder_that_is_not_writable_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.check_disk(tmp_path / "not" / "there").status is Status.FAIL


def test_without_json_the_output_is_lines() -> None:
    result = CliRunner().invoke(app, ["doctor", "--port", "0"])
    assert "Python" in result.stdout
    assert "ok" in result.stdout
