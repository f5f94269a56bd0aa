"""`loragate init`, and what the first start makes of its file."""

import asyncio
import configparser
import stat
from pathlib import Path

import pytest
from certificates import server_files

from loragate.adapter_store.store import Store
from loragate.cli.data_dir.first_tenant import create_first_tenant
from loragate.cli.data_dir.preparation import prepare_store, secret_keys
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from tests.cli.command_runner import run

FILE = Path("loragate.toml")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def key_of(settings: Settings) -> str:
    assert settings.admin_key is not None
    return settings.admin_key.get_secret_value()


def test_it_asks_and_serve_reads_the_answers() -> None:
    shown = run("init", typed="Qwen/Qwen3-0.6B\n\nacme\n").stdout
    settings = load()
    assert (settings.model, settings.first_tenant) == ("Qwen/Qwen3-0.6B", "acme")
    assert key_of(settings).startswith("lg-admin-")
    assert key_of(settings) not in shown
    assert stat.S_IMODE(FILE.stat().st_mode) == 0o600


def test_options_ask_nothing(tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    (tmp_path / "key").write_text("an admin key of 30 characters!\n")
    cert, key, _ = server_files(tmp_path)
    files = ["--tls-cert", cert.name, "--tls-key", key.name, "--data-dir", "data"]
    run("init", "--yes", "--model", "my model", "--admin-key", "@key", "--host", "0.0.0.0", "--port", "443", *files)
    settings = load()
    assert settings.model == str(tmp_path / "my model")  # wherever the server is started
    assert (settings.tls_cert, settings.data_dir) == (cert, tmp_path / "data")
    assert (settings.host, settings.port, settings.first_tenant) == ("0.0.0.0", 443, None)
    assert key_of(settings) == "an admin key of 30 characters!"


def test_what_exists_is_replaced_only_if_that_is_asked_for() -> None:
    run("init", "--yes", "--model", "one")
    assert "--force" in run("init", "--yes", "--model", "two", status=2).stderr
    assert load().model == "one"
    run("init", "--yes", "--model", "two", "--force")
    assert load().model == "two"
    assert stat.S_IMODE(FILE.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--model"),
        (["--model", "m", "--port", "99999"], "--port"),
        (["--model", "m", "--admin-key", "short"], "--admin-key"),
        (["--model", "m", "--first-tenant", " acme"], "first-tenant"),
        (["--model", "m", "--tls-cert", "missing.pem"], "LORAGATE_TLS_KEY"),
    ],
)
def test_nothing_is_written_for_what_serve_would_reject(options: list[str], said: str) -> None:
    assert said in run("init", "--yes", *options, status=2).stderr
    assert not list(Path().iterdir())


def test_the_unit_may_write_to_the_data_only(tmp_path: Path) -> None:
    run(
        "init", "--yes", "--model", "m", "--data-dir", "the data", "--systemd", "loragate.service", "--memory-max", "8G"
    )
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read("loragate.service")
    service = unit["Service"]
    data = tmp_path / "the data"
    assert service["ReadWritePaths"] == f'"{data}"'
    assert data.is_dir(), "systemd starts no service that may write to a folder which does not exist"
    assert f'serve --config {tmp_path}/loragate.toml --data-dir "{data}"' in service["ExecStart"]
    hardening = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "MemoryMax": "8G", "CapabilityBoundingSet": ""}
    assert {name: service[name] for name in hardening} == hardening


def test_a_unit_for_a_low_port_may_bind_it() -> None:
    run("init", "--yes", "--model", "m", "--port", "443", "--systemd", "loragate.service")
    assert "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" in Path("loragate.service").read_text()


def test_the_first_start_creates_the_tenant_and_no_later_one_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = load(data_dir=tmp_path, first_tenant="acme", admin_key="an admin key of 30 characters!")
    asyncio.run(prepare_store(settings))
    file = tmp_path / "first-tenant.key"
    key = file.read_text().strip()
    assert (key[:3], stat.S_IMODE(file.stat().st_mode)) == ("lg-", 0o600)
    shown = capsys.readouterr().out
    assert str(file) in shown
    assert key not in shown
    assert asyncio.run(tenants_after_another_start(settings)) == ["acme"]
    assert not caplog.records
    file.unlink()
    assert asyncio.run(tenants_after_another_start(settings)) == ["acme"]
    assert not file.exists()
    assert not caplog.records, "who has read the key may remove its file"
    other = load(data_dir=tmp_path, first_tenant="globex", admin_key="an admin key of 30 characters!")
    assert asyncio.run(tenants_after_another_start(other)) == ["acme"]
    assert "globex is not created" in caplog.text
    assert "`loragate keys create globex`" in caplog.text


async def tenants_after_another_start(settings: Settings) -> list[str]:
    keys = secret_keys(settings)
    store = await Store.open(settings.effective_database_url, settings.effective_blob_url, keys.primary)
    try:
        await create_first_tenant(store, settings)
        async with store.admin() as admin:
            return [tenant.name for tenant in await admin.tenants.list()]
    finally:
        await store.close()
