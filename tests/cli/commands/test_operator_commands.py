"""`loragate tenants` and `loragate keys` against the real gateway."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from running_server import client, ok
from signed_adapters import new_key, write_public_key
from typer.testing import CliRunner, Result

from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import load_policy
from loragate.cli.main import app
from tests.cli.running import ADMIN_KEY, real_gateway


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with real_gateway(tmp_path, engine_runs=False) as url:
        monkeypatch.setenv("LORAGATE_BASE_URL", url)
        monkeypatch.setenv("LORAGATE_ADMIN_KEY", ADMIN_KEY)
        yield url


def run(*arguments: str, status: int = 0, typed: str | None = None) -> Result:
    result = CliRunner().invoke(app, arguments, input=typed)
    assert result.exit_code == status, result.output
    return result


def rows(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


@pytest.mark.usefixtures("server")
def test_the_life_of_a_tenant() -> None:
    created = json.loads(run("tenants", "create", "acme", "--weight", "2", "--json").stdout)[0]
    assert (created["name"], created["weight"]) == ("acme", 2.0)
    run("tenants", "create", "other")
    assert {row[1] for row in rows(run("tenants", "list"))} == {"acme", "other"}

    run("tenants", "update", "acme", "--name", "acme & sons")
    shown = json.loads(run("tenants", "show", created["id"]).stdout)
    assert (shown["name"], shown["weight"]) == ("acme & sons", 2.0)

    run("tenants", "delete", "acme & sons", typed="n\n", status=1)
    assert len(rows(run("tenants", "list"))) == 2
    assert run("tenants", "delete", "acme & sons", typed="y\n").stdout.endswith(f"deleted {created['id']}\n")
    assert [row[1] for row in rows(run("tenants", "list"))] == ["other"]


@pytest.mark.usefixtures("server")
def test_the_life_of_a_key() -> None:
    run("tenants", "create", "acme")
    created = run("keys", "create", "acme", "--name", "ci", "--scope", "inference", "--expires-at", "2090-01-01")
    key = created.stdout.strip()
    key_id = key.split("-")[1]
    assert key.startswith("lg-")
    assert created.stdout.count("\n") == 1, "the key is alone on stdout"
    assert key not in created.stderr

    [row] = rows(run("keys", "list", "acme"))
    assert row[:3] == [key_id, "ci", '["inference"]']
    assert row[3].startswith(("2089-12-31", "2090-01-01"))
    assert row[4] == "-"

    rotated = json.loads(run("keys", "rotate", key_id, "--json").stdout)
    assert rotated["rotated_from"] == key_id
    run("keys", "revoke", rotated["id"])
    listed = {row[0]: row for row in rows(run("keys", "list", "acme"))}
    assert listed[rotated["id"]][4] != "-"


@pytest.mark.usefixtures("server")
def test_an_admin_keys_life(monkeypatch: pytest.MonkeyPatch) -> None:
    created = run("admin-keys", "create", "alice", "--expires-at", "2090-01-01")
    key = created.stdout.strip()
    key_id = key.split("-")[1]
    assert created.stdout.count("\n") == 1, "the key is alone on stdout"
    assert key not in created.stderr
    run("admin-keys", "revoke", json.loads(run("admin-keys", "create", "bob", "--json").stdout)["id"])

    monkeypatch.setenv("LORAGATE_ADMIN_KEY", key)
    bob, alice = rows(run("admin-keys", "list"))
    assert (bob[1], alice[:2]) == ("bob", [key_id, "alice"])
    assert bob[3] != "-" == alice[3]
    run("tenants", "create", "acme")
    assert json.loads(run("audit", "--json").stdout)[0]["actor"] == f"admin_key:{key_id}"
    run("admin-keys", "revoke", key_id)
    assert "not valid" in run("tenants", "list", status=1).stderr


@pytest.mark.usefixtures("server")
def test_the_audit_log() -> None:
    acme = json.loads(run("tenants", "create", "acme", "--json").stdout)[0]["id"]
    run("tenants", "create", "other")
    run("tenants", "update", "acme", "--weight", "3")
    key_id = run("keys", "create", "acme").stdout.split("-")[1]
    run("keys", "revoke", key_id)

    events = json.loads(run("audit", "--json").stdout)
    assert [event["action"] for event in events][:2] == ["api_key.revoke", "api_key.create"]
    [update] = json.loads(run("audit", "--action", "tenant.update", "--json").stdout)
    assert (update["target"], update["before"], update["after"]) == (f"tenant:{acme}", {"weight": 1.0}, {"weight": 3.0})
    assert {row[4] for row in rows(run("audit", "--tenant", "acme"))} == {acme}
    assert {row[1] for row in rows(run("audit", "--actor", "admin_key"))} == {"admin_key"}
    assert len(rows(run("audit", "--limit", "3"))) == 3
    assert not rows(run("audit", "--until", "2000-01-01"))
    assert len(rows(run("audit", "--since", "2000-01-01"))) == len(events)
    assert "no tenant unknown" in run("audit", "--tenant", "unknown", status=1).stderr


@pytest.mark.usefixtures("server")
def test_an_export_of_the_audit_log_shows_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.cli.commands.audit._SETTLED", timedelta(seconds=-1))
    file = tmp_path / "audit.jsonl"
    run("tenants", "create", "acme")
    first = run("audit", "export", str(file)).stdout.strip()
    run("tenants", "create", "other")
    head = run("audit", "export", str(file)).stdout.strip()
    assert run("audit", "export", str(file)).stdout.strip() == head, "there is nothing new"
    lines = file.read_text().splitlines(keepends=True)
    events = json.loads(run("audit", "--json", "--limit", "1000").stdout)
    assert [json.loads(line)["event"] for line in lines] == events[::-1]
    assert f"{len(events)} events, the last hash is {head}" in run("audit", "verify", str(file)).stdout
    run("audit", "verify", str(file), "--head", first)

    changed = lines[1].replace("tenant.create", "tenant.delete")
    for broken, number in (
        ([lines[0], changed, *lines[2:]], 2),
        ([lines[0], *lines[2:]], 2),
        ([lines[1], lines[0], *lines[2:]], 1),
        ([*lines[:-1], "{}\n"], len(lines)),
    ):
        file.write_text("".join(broken))
        assert f"line {number}:" in run("audit", "verify", str(file), status=1).stderr
        assert f"line {number}:" in run("audit", "export", str(file), status=1).stderr, "nothing is added to it"
    file.write_text("".join(lines[:-1]))
    run("audit", "verify", str(file))
    assert "was cut" in run("audit", "verify", str(file), "--head", head, status=1).stderr


def test_lists_include_all_pages(server: str) -> None:
    with client(server, ADMIN_KEY) as admin:
        for number in range(103):
            ok(admin.post("/admin/v1/tenants", json={"name": f"tenant-{number}"}))
    assert len(rows(run("tenants", "list"))) == 103


@pytest.mark.usefixtures("server")
def test_rejections_are_sentences_with_the_request_id() -> None:
    run("tenants", "create", "acme")
    taken = run("tenants", "create", "acme", status=1)
    assert taken.stderr.startswith("error: A tenant named `acme` already exists.")
    assert "(request req_" in taken.stderr
    assert "Traceback" not in taken.output
    assert "no tenant unknown" in run("tenants", "show", "unknown", status=1).stderr
    assert "give --name, --weight," in run("tenants", "update", "acme", status=2).stderr
    assert "(request " in run("keys", "revoke", "n/../../x", status=1).stderr


@pytest.mark.usefixtures("server")
def test_a_wrong_admin_key_is_rejected() -> None:
    rejected = run("tenants", "list", "--admin-key", "not the admin key of the tests", status=1)
    assert "(request req_" in rejected.stderr


@pytest.mark.usefixtures("server")
def test_a_trace_of_an_unreachable_engine_writes_no_file(tmp_path: Path) -> None:
    rejected = run("engine-trace", str(tmp_path / "trace.json"), status=1)
    assert "engine does not respond" in rejected.stderr
    assert not (tmp_path / "trace.json").exists()


def test_without_a_server_the_error_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`loragate serve`" in run("tenants", "list", status=1).stderr
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", ADMIN_KEY)
    down = run("tenants", "list", "--base-url", "http://127.0.0.1:9", status=1)
    assert "no server responds at http://127.0.0.1:9" in down.stderr
    assert "`loragate serve`" in down.stderr


@pytest.mark.parametrize("url", ["nonsense", "http://[::1", "ftp://host", "http://host:99999"])
def test_a_bad_address_is_rejected_by_option(url: str) -> None:
    assert "--base-url: " in run("tenants", "list", "--base-url", url, status=2).stderr


def test_without_a_key_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_BASE_URL", "http://127.0.0.1:9")
    assert "LORAGATE_ADMIN_KEY" in run("tenants", "list", status=1).stderr
    assert "LORAGATE_API_KEY" in run("adapters", "list", status=1).stderr


def test_the_signers_of_a_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = SignerConfig("acme-release", public_key=write_public_key(tmp_path / "key.pub", new_key()))
    policy = load_policy(SignatureConfig(Require.NEVER, (signer,)))
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", ADMIN_KEY)
    with real_gateway(tmp_path, engine_runs=False, signatures=policy) as url:
        monkeypatch.setenv("LORAGATE_BASE_URL", url)
        run("tenants", "create", "acme", "--signer", "acme-release")
        assert rows(run("tenants", "list"))[0][4] == '["acme-release"]'
        unknown = run("tenants", "update", "acme", "--signer", "other", status=1)
        assert "'other' is not configured" in unknown.stderr
        assert run("tenants", "update", "acme", "--signer", "x", "--no-signers", status=2).stderr.count("not both") == 1
        run("tenants", "update", "acme", "--weight", "2")
        assert json.loads(run("tenants", "show", "acme").stdout)["signers"] == ["acme-release"]
        run("tenants", "update", "acme", "--no-signers")
        assert json.loads(run("tenants", "show", "acme").stdout)["signers"] == []
