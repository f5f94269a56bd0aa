"""`loragate backup` and `loragate restore` in data directories, without a server."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.data_dir.preparation import make_data_dir, prepare_store, secret_keys
from loragate.cli.settings.model import Settings
from loragate.gateway.metering.live_counters import LiveCounters, interrupted_requests
from loragate.gateway.metering.record_format import decode_records, encode_record
from loragate.gateway.metering.recovery import lock_dead_workers
from loragate.gateway.metering.spool import Spool
from tests.cli.command_runner import run


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


class Installation:
    """A data directory as a server leaves it."""

    def __init__(self, data_dir: Path) -> None:
        self.settings = Settings(data_dir=data_dir)
        self.data_dir = data_dir

    async def create_key(self, tenant: str) -> tuple[str, str]:
        """Create a tenant with a key; return the key's id and text."""
        store = await self.open()
        async with store.admin(write=True) as admin:
            found = await admin.tenants.create(tenant)
            key = await admin.keys.create(found.id)
        await store.close()
        return key.key.id, key.secret

    async def revoke(self, key_id: str) -> None:
        store = await self.open()
        async with store.admin(write=True) as admin:
            await admin.keys.revoke(key_id)
        await store.close()

    async def accepts(self, key: str) -> bool:
        store = await self.open()
        try:
            return await store.authenticate(key) is not None
        finally:
            await store.close()

    async def open(self) -> Store:
        settings = self.settings
        return await Store.open(
            settings.effective_database_url, settings.effective_blob_url, secret_keys(settings).primary
        )


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    made = Installation(tmp_path / "data")
    make_data_dir(made.settings)
    asyncio.run(prepare_store(made.settings))
    return made


def doctor(data_dir: Path) -> dict[str, dict[str, str]]:
    result = run("doctor", "--json", "--port", "0", "--data-dir", str(data_dir))
    return {finding["subject"]: finding for finding in json.loads(result.stdout)}


def test_from_a_backup_to_a_confirmed_restoration(installation: Installation, tmp_path: Path) -> None:
    key_id, key = asyncio.run(installation.create_key("acme"))
    _, kept = asyncio.run(installation.create_key("globex"))
    printed = run("backup", "saved", "--data-dir", str(installation.data_dir)).stdout
    assert printed.startswith("saved: ")
    for path in (tmp_path / "saved").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    asyncio.run(installation.revoke(key_id))
    other = Installation(tmp_path / "other")
    arguments = ("restore", "saved", "--data-dir", str(other.data_dir))
    assert "give it as --journal" in run(*arguments, status=1).output
    printed = run(*arguments, "--journal", str(installation.data_dir / "blobs")).stdout
    assert "1 keys were revoked" in printed
    assert "new versions of adapters start at" in printed
    assert (other.data_dir / "secret_key").read_text() == (installation.data_dir / "secret_key").read_text()
    assert not asyncio.run(other.accepts(key))
    assert asyncio.run(other.accepts(kept))
    found = doctor(other.data_dir)["restore"]
    assert found["status"] == "warn"
    assert "restored, sweep held" in found["found"]
    assert "--confirm" in found["advice"]
    assert "swept again" in run("restore", "--confirm", "--data-dir", str(other.data_dir)).stdout
    assert "restore" not in doctor(other.data_dir)
    assert "tenants" in run(*arguments, status=1).output, "the target is not empty now"


def test_a_backup_without_the_secret_key_needs_it(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("backup", "saved", "--without-secret", "--data-dir", str(installation.data_dir))
    secret = (installation.data_dir / "secret_key").read_text().strip()
    assert not [path for path in Path("saved").rglob("*") if path.is_file() and secret in path.read_text("latin-1")]
    arguments = ("restore", "saved", "--keep-keys", "--data-dir", "other")
    assert "LORAGATE_SECRET_KEY" in run(*arguments, status=1).output
    monkeypatch.setenv("LORAGATE_SECRET_KEY", "another-secret-key-of-32-characters")
    assert "another secret key" in run(*arguments, status=1).output
    monkeypatch.setenv("LORAGATE_SECRET_KEY", secret)
    run(*arguments)
    assert not Path("other/secret_key").exists(), "it is not written where it comes from the environment"


def test_another_secret_key_is_replaced_only_on_request(installation: Installation) -> None:
    key_id, _ = asyncio.run(installation.create_key("acme"))
    run("backup", "saved.tar", "--data-dir", str(installation.data_dir))
    other = Path("other")
    other.mkdir(mode=0o700)
    (other / "secret_key").write_text("another-secret-key-of-32-characters\n")
    arguments = ("restore", "saved.tar", "--keep-keys", "--data-dir", "other")
    assert "--replace" in run(*arguments, status=1).output
    assert (other / "secret_key").read_text() == "another-secret-key-of-32-characters\n"
    printed = run(*arguments, "--replace").stdout
    assert key_id in printed, "keys that may have been revoked are listed"
    assert (other / "secret_key").read_text() == (installation.data_dir / "secret_key").read_text()


def _record(number: int) -> UsageRecord:
    return UsageRecord(
        id=f"us_{number:020d}",
        request_id=f"req-{number}",
        tenant_id="tn_1",
        key_id="k",
        endpoint="chat",
        base_model="base",
        prompt_tokens=number,
        outcome=Outcome.COMPLETED,
        started_at=utc_now(),
    )


def test_usage_that_is_not_settled_goes_to_the_next_gateway(installation: Installation, tmp_path: Path) -> None:
    """A living worker's segments, and the counters of its running requests."""
    usage = installation.data_dir / "usage"
    spool = Spool(usage)
    spool.append(encode_record(_record(1)) + encode_record(_record(2)))
    counters = LiveCounters(spool.folder)
    slot = counters.take(_record(3), None)
    assert slot is not None
    counters.update(slot, 3, 2, 0, None, 5, 3, 2)
    run("backup", "saved", "--data-dir", str(installation.data_dir))
    run("restore", "saved", "--keep-keys", "--data-dir", "other")
    (dead,) = lock_dead_workers(tmp_path / "other" / "usage", tmp_path)
    try:
        (segment,) = dead.segments()
        assert [record.id for record in decode_records(segment.read_bytes()).records] == [_record(1).id, _record(2).id]
        (running,) = dead.interrupted_requests()
        assert (running.record.id, running.record.completion_tokens) == (_record(3).id, 2)
        dead.remove()
    finally:
        dead.release()
    assert interrupted_requests(spool.folder), "the backup changes nothing"
    assert sum(path.stat().st_size for path in (tmp_path / "saved" / "usage").rglob("*")) < 1 << 20


def test_what_cannot_be_done_is_said(installation: Installation, tmp_path: Path) -> None:
    data_dir = str(installation.data_dir)
    assert "has no loragate database" in run("backup", "saved", "--data-dir", "nothing", status=1).output
    assert not Path("nothing").exists()
    assert "has no loragate database" in run("restore", "--confirm", "--data-dir", "nothing", status=1).output
    run("backup", "saved", "--data-dir", data_dir)
    assert "is not empty" in run("backup", "saved", "--data-dir", data_dir, status=1).output
    assert "no restoration waits" in run("restore", "--confirm", "--data-dir", data_dir).output
    assert "--confirm" in run("restore", status=2).output
    assert "--confirm" in run("restore", "saved", "--confirm", status=2).output
    assert "There is no backup" in run("restore", "none.tar", "--data-dir", "other", status=1).output
    with lock_data_dir(installation.data_dir):
        assert "another loragate server" in run("restore", "saved", "--data-dir", data_dir, status=1).output
