"""A restoration brings back all that was stored, and replaces an installation only on request."""

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import inspect

from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.backup.manifest import NAME
from loragate.adapter_store.backup.tables import current_tables, dump
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import Conflict, Invalid, SchemaMismatch, WrongSecretKey
from tests.adapter_store.backup.places import Place, fill, new_key

on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


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


@pytest.mark.parametrize(
    ("backend", "any_place", "name"),
    [("sqlite", "sqlite", "backup"), ("sqlite", "postgres", "backup.tar"), ("postgres", "sqlite", "backup")],
    indirect=["backend", "any_place"],
)
async def test_all_that_was_stored_comes_back(
    world: Any, lost: Place, any_place: Place, take_backup: Any, opened: Any, name: str
) -> None:
    """Into each kind of database, also another one, from a folder and from a tar file."""
    key, file_id = await fill(world)
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
    key, _ = await fill(world)
    backup = await take_backup()
    before = await _rows(lost.database_url)
    with pytest.raises(Conflict, match="--replace"):
        await lost.restore(backup)
    assert await _rows(lost.database_url) == before
    newer = await new_key(world.store, world.acme.id)
    await lost.restore(backup, replace=True)
    restored = await opened(lost)
    assert await restored.authenticate(key) is not None
    assert await restored.authenticate(newer.secret) is None


@on_sqlite
async def test_a_backup_of_an_older_schema_is_upgraded(
    world: Any, lost: Place, elsewhere: Place, take_backup: Any, opened: Any
) -> None:
    key, _ = await fill(world)
    backup = await take_backup()
    manifest = orjson.loads((backup / NAME).read_bytes())
    training = ("checkpoints", "commands", "runs", "samplers", "samples", "sessions")
    newer = ("batch_lines", "batches", "engine_leases", "replica_sets", "restorations", "sweep_holds")
    newer += tuple(f"training_{table}" for table in training)
    newer += ("conversation_items", "conversations", "response_events", "stored_responses")
    newer = tuple(sorted(newer))
    without = [f"database/{table}.jsonl" for table in newer]
    manifest["files"] = [file for file in manifest["files"] if file["name"] not in without]
    (backup / NAME).write_bytes(orjson.dumps(manifest))
    with pytest.raises(Invalid, match=", ".join(newer)):
        await elsewhere.restore(backup, keep_keys=True)
    columns = {"api_keys": "secret_id", "admin_keys": "secret_id", "tenants": "signers", "usage_records": "engine_id"}
    for table, column in (
        *columns.items(),
        ("tenants", "store_responses_by_default"),
        ("fine_tuning_jobs", "evaluation"),
        ("adapter_versions", "signer"),
        ("adapter_versions", "classifier"),
    ):
        _drop_column(backup, manifest, table, column)
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
