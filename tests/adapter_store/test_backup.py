"""Backups and restorations: nothing lost, no key revived, no version number given twice."""

import hashlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import inspect, update

from loragate.adapter_store import sweep as sweep_module
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.backup.archive import new_archive, open_archive
from loragate.adapter_store.backup.backup import back_up
from loragate.adapter_store.backup.manifest import NAME
from loragate.adapter_store.backup.replay import NewEpoch
from loragate.adapter_store.backup.restore import RestoreOptions, confirm, last_restoration, restore
from loragate.adapter_store.backup.tables import current_tables, dump
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import Conflict, Invalid, NotFound, SchemaMismatch, Unavailable, WrongSecretKey
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.journal import Journal
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.sweep_holds import hold_sweep
from loragate.adapter_store.tables.base import AdapterRow
from loragate.adapter_store.tables.recovery import SweepHoldRow

SECRET_KEY = b"a secret key for the tests, 32+ bytes"
NOW = timedelta(0)
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class Place:
    """Where a backup is restored."""

    database_url: str
    blob_url: str

    async def restore(self, backup: Path, secret_key: bytes = SECRET_KEY, **options: Any) -> NewEpoch:
        with open_archive(backup) as archive:
            return await restore(
                archive, self.database_url, self.blob_url, SecretKeys(secret_key), RestoreOptions(**options)
            )

    async def open(self) -> Store:
        return await Store.open(self.database_url, self.blob_url, SECRET_KEY)


@pytest.fixture
def lost(world: Any, database_url: str, blob_url: str) -> Place:
    """The installation that is backed up."""
    return Place(database_url, blob_url)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Place:
    """A new installation."""
    return Place(f"sqlite:///{tmp_path / 'restored.db'}", str(tmp_path / "restored-blobs"))


@pytest.fixture
def new_database(lost: Place, elsewhere: Place) -> Place:
    """The lost installation with a new database: its blob store, and so the journal, is still there."""
    return replace(elsewhere, blob_url=lost.blob_url)


@pytest.fixture
def take_backup(lost: Place, tmp_path: Path) -> Callable[..., Any]:
    async def take(name: str = "backup") -> Path:
        with new_archive(tmp_path / name) as archive:
            await back_up(lost.database_url, lost.blob_url, archive, version="1.2", others=list)
        return tmp_path / name

    return take


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[Place], Any]]:
    """Opens stores, and closes them at the end."""
    stores: list[Store] = []

    async def open_store(place: Place) -> Store:
        stores.append(await place.open())
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


async def _publish(store: Store, world: Any, name: str, seed: int) -> int:
    made = world.make_upload(seed=seed)
    async with store.tenant(world.acme.id, write=True) as scope:
        published = await scope.publisher.publish(name, made.config, made.file(), probe=no_probe)
    return int(published.version)


async def _new_key(store: Store, tenant_id: str) -> Any:
    async with store.admin(write=True) as admin:
        return await admin.keys.create(tenant_id, name="k")


async def _rows(database_url: str) -> dict[str, list[Any]]:
    """Return all rows in the form of a backup, by table."""
    database = Database(database_url)
    rows: dict[str, list[Any]] = {}
    try:
        async with database.operator() as session:
            connection = await session.connection()
            for table in current_tables():
                lines = b"".join([each async for each in dump(connection, table)]).splitlines()
                names = [name for name, _ in orjson.loads(lines[0])]
                rows[table.name] = [dict(zip(names, orjson.loads(line), strict=True)) for line in lines[1:]]
    finally:
        await database.close()
    return rows


def _comparable(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the rows without what a restoration changes on purpose, sorted."""
    kept = {name: list(each) for name, each in rows.items() if name not in ("restorations", "sweep_holds")}
    kept["adapters"] = [each | {"last_version": None} for each in kept["adapters"]]
    kept["audit_log"] = [each for each in kept["audit_log"] if each["action"] != "installation.restore"]
    return {name: sorted(each, key=orjson.dumps) for name, each in kept.items()}


async def _fill(world: Any) -> tuple[str, str]:
    """Store something of each kind; return a key that works and a file's id."""
    await world.publish("support", seed=1, tags=("fr", "de"))
    await world.publish("support", seed=2)
    await world.publish("support", seed=3, tenant=world.other)
    old = await _new_key(world.store, world.acme.id)
    async with world.store.admin(write=True) as admin:
        key = await admin.keys.rotate(old.key.id, grace_seconds=60)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        file = await scope.files.create(FileFacts("lines.jsonl", Purpose.FINE_TUNE), io.BytesIO(b"a line\n"), 7)
    return key.secret, file.id


@pytest.fixture
async def any_place(request: pytest.FixtureRequest, elsewhere: Place) -> Place:
    """A new installation on a kind of database."""
    if request.param == "sqlite":
        return elsewhere
    server = request.getfixturevalue("postgres_server")
    await server.run("DROP DATABASE IF EXISTS restored WITH (FORCE)")
    await server.run("CREATE DATABASE restored")
    return replace(elsewhere, database_url=server.url("restored"))


@pytest.mark.parametrize(
    ("backend", "any_place", "name"),
    [("sqlite", "sqlite", "backup"), ("sqlite", "postgres", "backup.tar"), ("postgres", "sqlite", "backup")],
    indirect=["backend", "any_place"],
)
async def test_all_that_was_stored_comes_back(
    world: Any, lost: Place, any_place: Place, take_backup: Any, opened: Any, name: str
) -> None:
    """Into each kind of database, also another one, from a folder and from a tar file."""
    key, file_id = await _fill(world)
    before = _comparable(await _rows(lost.database_url))
    backup = await take_backup(name)
    assert backup.stat().st_mode & 0o077 == 0
    await any_place.restore(backup, journal_url=lost.blob_url)
    assert _comparable(await _rows(any_place.database_url)) == before
    restored = await opened(any_place)
    assert (await restored.authenticate(key)).principal.tenant_id == world.acme.id
    for tenant, version in ((world.acme, 1), (world.acme, 2), (world.other, 1)):
        async with restored.tenant(tenant.id) as scope:
            found = await scope.adapters.version("support", version)
        stored = await restored.open_adapter(tenant.id, found.digest)
        made = world.make_upload(seed=version if tenant is world.acme else 3)
        assert stored.config_json == made.config
        assert b"".join([chunk async for chunk in stored.tensors]) == made.tensors
    async with restored.tenant(world.acme.id) as scope:
        pieces = await scope.files.pieces(file_id)
        assert [
            each.name for each in (await scope.adapters.list(AdapterFilter(search="upport", tags=("fr",)))).items
        ] == ["support"]
    assert b"".join([chunk async for chunk in restored.read_pieces(world.acme.id, pieces)]) == b"a line\n"


async def test_an_existing_installation_is_replaced_only_on_request(
    world: Any, lost: Place, take_backup: Any, opened: Any
) -> None:
    key, _ = await _fill(world)
    backup = await take_backup()
    before = await _rows(lost.database_url)
    with pytest.raises(Conflict, match="--replace"):
        await lost.restore(backup)
    assert await _rows(lost.database_url) == before
    newer = await _new_key(world.store, world.acme.id)
    await lost.restore(backup, replace=True)
    restored = await opened(lost)
    assert await restored.authenticate(key) is not None
    assert await restored.authenticate(newer.secret) is None


@on_sqlite
async def test_what_ended_after_the_backup_stays_ended(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    kept, revoked, rotated, expiring = [await _new_key(world.store, world.acme.id) for _ in range(4)]
    of_tenant = await _new_key(world.store, world.other.id)
    async with world.store.admin(write=True) as admin:
        named = await admin.admin_keys.create("backup")
    backup = await take_backup()
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(revoked.key.id)
        await admin.keys.rotate(rotated.key.id)
        await admin.keys.rotate(expiring.key.id, grace_seconds=3600)
        await admin.admin_keys.revoke(named.key.id)
        await admin.tenants.delete(world.other.id)
        soon = (await admin.keys.get(expiring.key.id)).expires_at
    epoch = await new_database.restore(backup)
    restored = await opened(new_database)
    assert await restored.authenticate(kept.secret) is not None
    for key in (revoked, rotated, of_tenant, named):
        assert await restored.authenticate(key.secret) is None
    async with restored.admin() as admin:
        found = (await admin.keys.get(expiring.key.id)).expires_at
    assert found == soon
    assert (epoch.revoked, epoch.deleted_tenants) == (4, ("other",))
    assert {key.id for key in epoch.valid_keys} == {kept.key.id, expiring.key.id}


@on_sqlite
async def test_a_replaced_admin_key_stays_replaced(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    old, new = "an-old-admin-key-of-24-characters", "a-new-admin-key-of-24-characters"
    await world.store.set_admin_key(old)
    backup = await take_backup()
    await world.store.set_admin_key(new)
    assert (await new_database.restore(backup)).admin_key_removed
    restored = await opened(new_database)
    assert await restored.authenticate(old) is None
    await restored.ensure_admin_key(new)
    assert await restored.authenticate(new) is not None


@on_sqlite
async def test_without_the_journal_the_operator_decides_about_keys(
    world: Any, elsewhere: Place, lost: Place, take_backup: Any, opened: Any, tmp_path: Path
) -> None:
    kept, revoked = [await _new_key(world.store, world.acme.id) for _ in range(2)]
    backup = await take_backup()
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(revoked.key.id)
    with pytest.raises(Conflict, match="--journal"):
        await elsewhere.restore(backup)
    assert not (tmp_path / "restored-blobs").exists()
    epoch = await elsewhere.restore(backup, keep_keys=True)
    assert {key.id for key in epoch.valid_keys} == {kept.key.id, revoked.key.id}
    assert epoch.version_floor == 2000, "a thousand numbers are left out for each hour that began"
    epoch = await elsewhere.restore(backup, replace=True, revoke_keys=True, journal_url=lost.blob_url)
    assert (epoch.number, epoch.revoked, epoch.valid_keys) == (2, 2, ())
    again = await elsewhere.restore(backup, replace=True)  # the journal was copied by the restoration before
    assert again.valid_keys == (), "a later restoration must not revive what an earlier one revoked"


@on_sqlite
async def test_no_version_number_is_given_twice(world: Any, new_database: Place, take_backup: Any) -> None:
    """Neither of an adapter that the backup has, nor of a name that was used first after it, nor at a second try."""
    await world.publish("support", seed=1)
    backup = await take_backup()
    given = {await _publish(world.store, world, name, seed) for name in ("support", "newer") for seed in range(2, 5)}
    for _ in range(2):
        await new_database.restore(backup, replace=True)
        restored = await new_database.open()
        numbers = {await _publish(restored, world, name, seed) for name in ("support", "newer") for seed in (7, 8)}
        await restored.close()
        assert not numbers & given
        given |= numbers
    assert max(given) < 10_000


@on_sqlite
async def test_numbers_far_above_those_of_the_backup_are_known(
    world: Any, new_database: Place, take_backup: Any
) -> None:
    await world.publish("support", seed=1)
    backup = await take_backup()
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterRow).values(last_version=2499))  # as 2498 publications would
    assert await _publish(world.store, world, "support", 2) == 2500
    assert (await new_database.restore(backup)).version_floor >= 3000


@on_sqlite
async def test_bytes_newer_than_the_backup_are_kept_until_the_operator_confirms(
    world: Any, new_database: Place, take_backup: Any, opened: Any
) -> None:
    await world.publish("support", seed=1)
    backup = await take_backup()
    newer = await world.publish("support", seed=2)
    await new_database.restore(backup)
    restored = await opened(new_database)
    report = await restored.sweep(NOW, NOW)
    assert (report.held, report.adapters) == (True, 0)
    assert await restored.open_adapter(world.acme.id, newer.digest)
    database = Database(new_database.database_url)
    try:
        last = await last_restoration(database)
        assert last is not None
        assert (last.epoch, last.confirmed_at) == (1, None)
        assert await confirm(database)
        assert not await confirm(database), "it is confirmed already"
    finally:
        await database.close()
    report = await restored.sweep(NOW, NOW)
    assert (report.held, report.adapters) == (False, 1)
    with pytest.raises(LookupError):
        await restored.open_adapter(world.acme.id, newer.digest)


async def test_a_backup_holds_the_sweep_also_one_that_runs(
    world: Any, lost: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        await world.publish(f"name-{seed}", seed=seed)
    async with world.adapters(write=True) as adapters:
        for seed in (1, 2):
            await adapters.delete(f"name-{seed}")
    database = Database(lost.database_url)
    try:
        async with hold_sweep(database, "bk_1") as still_held:
            assert (await world.store.sweep(NOW, NOW)).held
            await still_held()
        async with AsyncExitStack() as stack:
            remove = sweep_module._remove_digest

            async def remove_then_hold(*what: Any) -> bool:
                removed = await remove(*what)
                if removed:
                    await stack.enter_async_context(hold_sweep(database, "bk_2"))
                return removed

            monkeypatch.setattr(sweep_module, "_remove_digest", remove_then_hold)
            assert (await world.store.sweep(NOW, NOW)).adapters == 1
    finally:
        await database.close()


@on_sqlite
async def test_a_hold_that_expired_fails_the_backup(world: Any, lost: Place) -> None:
    database = world.store._database
    async with hold_sweep(database, "bk_1") as still_held:
        async with database.operator(write=True) as session:
            await session.execute(update(SweepHoldRow).values(expires_at=datetime.fromisoformat("2020-01-01T00Z")))
        assert not (await world.store.sweep(NOW, NOW)).held, "an expired hold holds nothing"
        with pytest.raises(Conflict, match="start the backup again"):
            await still_held()


@on_sqlite
@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_damaged_backup_is_rejected_by_the_name_of_the_file(
    world: Any, elsewhere: Place, take_backup: Any, name: str, tmp_path: Path
) -> None:
    await _fill(world)
    backup = await take_backup(name)
    with open_archive(backup) as archive:
        damaged = next(file.name for file in archive.manifest.files if file.name.endswith(".safetensors"))
        content = archive.read(damaged)
    if backup.is_dir():
        (backup / damaged).write_bytes(content[:-1] + b"!")
    else:
        whole = backup.read_bytes()
        at = whole.index(content) + len(content) - 1
        backup.write_bytes(whole[:at] + b"!" + whole[at + 1 :])
    with pytest.raises(Invalid, match=f"damaged: {damaged} has other bytes"):
        await elsewhere.restore(backup, keep_keys=True)
    assert not (tmp_path / "restored-blobs").exists(), "nothing is written before all is verified"
    if backup.is_dir():
        (backup / damaged).unlink()
        with pytest.raises(Invalid, match=f"damaged: {damaged} cannot be read"):
            await elsewhere.restore(backup, keep_keys=True)


@on_sqlite
@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_an_interrupted_backup_is_rejected(
    world: Any, elsewhere: Place, take_backup: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await _fill(world)

    def power_cut(*_: Any) -> None:
        raise OSError("cut")

    monkeypatch.setattr("loragate.adapter_store.backup.archive.ArchiveWriter.finish", power_cut)
    with pytest.raises(OSError, match="cut"):
        await take_backup(name)
    left = tmp_path / (name if name == "backup" else f"{name}.partial")
    with pytest.raises(Invalid, match="interrupted"):
        await elsewhere.restore(left)
    with pytest.raises(NotFound):
        await elsewhere.restore(tmp_path / "none")
    assert not (await world.store.sweep(NOW, NOW)).held, "a backup that fails releases the sweep"


@on_sqlite
async def test_a_cut_tar_file_is_rejected(world: Any, elsewhere: Place, take_backup: Any) -> None:
    await _fill(world)
    backup = await take_backup("backup.tar")
    with backup.open("r+b") as file:
        file.truncate(backup.stat().st_size // 2)
    with pytest.raises(Invalid, match=r"interrupted|no backup"):
        await elsewhere.restore(backup)


@on_sqlite
async def test_names_in_a_manifest_lead_nowhere_else(
    world: Any, elsewhere: Place, take_backup: Any, tmp_path: Path
) -> None:
    backup = await take_backup()
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    manifest = orjson.loads((backup / NAME).read_bytes())
    for name in ("../outside", "blobs/../../outside", "usage/../outside", str(outside)):
        file = {"name": name, "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        (backup / NAME).write_bytes(orjson.dumps(manifest | {"files": [*manifest["files"], file]}))
        with pytest.raises(Invalid, match="a backup has no file"):
            await elsewhere.restore(backup, keep_keys=True)


@on_sqlite
async def test_a_backup_of_an_older_schema_is_upgraded(
    world: Any, lost: Place, elsewhere: Place, take_backup: Any, opened: Any
) -> None:
    key, _ = await _fill(world)
    backup = await take_backup()
    manifest = orjson.loads((backup / NAME).read_bytes())
    without = ("database/restorations.jsonl", "database/sweep_holds.jsonl")
    manifest["files"] = [file for file in manifest["files"] if file["name"] not in without]
    (backup / NAME).write_bytes(orjson.dumps(manifest))
    with pytest.raises(Invalid, match="restorations, sweep_holds"):
        await elsewhere.restore(backup, keep_keys=True)
    for table in ("api_keys", "admin_keys"):
        _drop_column(backup, manifest, table, "secret_id")
    (backup / NAME).write_bytes(orjson.dumps(manifest | {"schema": "0023"}))
    await elsewhere.restore(backup, keep_keys=True)
    assert await (await opened(elsewhere)).authenticate(key) is not None
    (backup / NAME).write_bytes(orjson.dumps(manifest | {"schema": "9999"}))
    with pytest.raises(SchemaMismatch, match="newer"):
        await elsewhere.restore(backup, keep_keys=True, replace=True)
    (backup / NAME).write_bytes(orjson.dumps(manifest | {"format": 2, "loragate": "7.0"}))
    with pytest.raises(Invalid, match=r"loragate 7\.0 or newer"):
        await elsewhere.restore(backup, keep_keys=True, replace=True)


def _drop_column(backup: Path, manifest: dict[str, Any], table: str, column: str) -> None:
    """Make a backup's table what it was before it had the column."""
    path = backup / f"database/{table}.jsonl"
    columns, *rows = map(orjson.loads, path.read_bytes().splitlines())
    at = [name for name, _ in columns].index(column)
    for row in (columns, *rows):
        del row[at]
    content = b"".join(orjson.dumps(row) + b"\n" for row in (columns, *rows))
    path.write_bytes(content)
    [file] = [file for file in manifest["files"] if file["name"] == f"database/{table}.jsonl"]
    file |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@on_sqlite
async def test_another_secret_key_changes_nothing(world: Any, elsewhere: Place, take_backup: Any) -> None:
    backup = await take_backup()
    with pytest.raises(WrongSecretKey):
        await elsewhere.restore(backup, b"another secret key, also 32 bytes", keep_keys=True)
    engine = create_engine(driver_url(elsewhere.database_url))
    async with engine.connect() as connection:
        assert await connection.run_sync(lambda there: inspect(there).get_table_names()) == []
    await engine.dispose()


async def test_a_revocation_without_a_blob_store_is_in_the_journal_later(
    world: Any, lost: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await _new_key(world.store, world.acme.id)

    async def unavailable(*_: Any) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", unavailable)
        async with world.store.admin(write=True) as admin:
            await admin.keys.revoke(key.key.id)
    assert await world.store.authenticate(key.secret) is None
    journal = Journal(world.store.blobs)
    assert key.key.id not in (await journal.read()).ends["api_key"]
    await world.store.sweep()
    assert key.key.id in (await journal.read()).ends["api_key"]


async def test_bytes_that_are_gone_are_listed(world: Any, lost: Place, take_backup: Any) -> None:
    published = await world.publish("support", seed=1)
    await world.store.blobs.of(world.acme.id).remove(published.digest)
    with open_archive(await take_backup()) as archive:
        missing = archive.manifest.missing
    folder = f"blobs/{world.acme.id}/{published.digest.removeprefix('sha256:')}"
    assert set(missing) == {f"{folder}/adapter_config.json", f"{folder}/adapter_model.safetensors"}
