"""Which schemas a version runs on: its own, and newer ones that say so."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest
from newer_schema import NEXT, with_contraction, with_expansion, without_newest
from sqlalchemy import text

from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.schema import (
    OUR_MIGRATIONS,
    LockWait,
    downgrade,
    newest_revision,
    require_compatible,
    upgrade,
)
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import SchemaMismatch, Unavailable
from loragate.adapter_store.store import Store
from tests.adapter_store.conftest import SECRET_KEY

pytestmark = pytest.mark.migrates

_FIRST_WITH_THE_RULE = "0025"
_CONTRACTIONS = ("drop_column", "drop_table", "alter_column", "rename_table", "drop_constraint")


async def checked(database_url: str, migrations: str = OUR_MIGRATIONS) -> None:
    database = Database(database_url)
    try:
        await require_compatible(database, migrations=migrations)
    finally:
        await database.close()


async def test_a_newer_compatible_schema_is_used_as_it_is(
    database_url: str, blob_url: str, tmp_path: Path, make_upload: Any
) -> None:
    """What a process of the previous release sees after the first one of the next release has started."""
    await upgrade(database_url, migrations=with_expansion(tmp_path / "newer"))
    await upgrade(database_url)  # as at each start
    await checked(database_url)
    store = await Store.open(database_url, blob_url, SECRET_KEY)
    try:
        async with store.admin(write=True) as admin:
            tenant = await admin.tenants.create("acme")
            key = (await admin.keys.create(tenant.id)).secret
        found = await store.authenticate(key)
        assert found is not None
        assert found.principal.tenant_id == tenant.id
    finally:
        await store.close()
    engine = create_engine(driver_url(database_url))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT motto FROM tenants"))).scalar_one() == "none"
        assert (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one() == NEXT
    await engine.dispose()


async def test_an_incompatible_schema_is_rejected_with_the_version_that_it_needs(
    database_url: str, blob_url: str, tmp_path: Path
) -> None:
    newer = with_contraction(tmp_path / "newer")
    await upgrade(database_url, migrations=newer)
    expected = rf"revision {NEXT}, .* knows revision {NEXT}. This one knows those up to {newest_revision()}"
    for attempt in (
        upgrade(database_url),
        checked(database_url),
        Store.open(database_url, blob_url, SECRET_KEY),
    ):
        with pytest.raises(SchemaMismatch, match=expected):
            await attempt
    await downgrade(database_url, newest_revision(), migrations=newer)
    await checked(database_url)


async def test_the_previous_release_runs_on_our_schema(empty_database_url: str, tmp_path: Path) -> None:
    previous = without_newest(tmp_path / "previous")
    await upgrade(empty_database_url, migrations=previous)
    await checked(empty_database_url, previous)
    with pytest.raises(SchemaMismatch, match=f"this version needs {newest_revision()}"):
        await checked(empty_database_url)
    await upgrade(empty_database_url)
    await upgrade(empty_database_url, migrations=previous)
    await checked(empty_database_url, previous)


async def test_an_undone_contraction_excludes_no_release(database_url: str, tmp_path: Path) -> None:
    previous, newer = without_newest(tmp_path / "previous"), with_contraction(tmp_path / "newer")
    await upgrade(database_url, migrations=newer)
    with pytest.raises(SchemaMismatch, match=f"knows revision {NEXT}"):
        await checked(database_url, previous)
    await downgrade(database_url, newest_revision(), migrations=newer)
    await checked(database_url, previous)


def test_migrations_that_remove_something_say_so() -> None:
    """Code of the release before may use what they remove."""
    for path in sorted(Path(OUR_MIGRATIONS, "versions").glob("r*.py")):
        if path.name[1:5] >= _FIRST_WITH_THE_RULE:
            assert not _removes(path.read_text()) or "compatible_from" in path.read_text(), path.name
    assert _removes('def upgrade():\n    op.drop_column("a", "b")')
    assert _removes('def _helper():\n    op.execute(sa.text("ALTER TABLE a RENAME COLUMN b TO c"))')
    assert not _removes('def downgrade():\n    op.drop_column("a", "b")')


def _removes(script: str) -> bool:
    functions = [node for node in ast.parse(script).body if isinstance(node, ast.FunctionDef)]
    code = "\n".join(ast.unparse(each) for each in functions if each.name != "downgrade")
    return any(name in code for name in _CONTRACTIONS) or any(word in code.upper() for word in ("RENAME ", "DROP "))


async def test_an_upgrade_waits_for_no_table_for_long(database_url: str, backend: str) -> None:
    """While it waits for a table, all others wait behind it."""
    if backend != "postgres":
        pytest.skip("about Postgres")
    await downgrade(database_url, "0023")
    engine = create_engine(driver_url(database_url))
    wait = LockWait(seconds=0.1, pause=0.05, attempts=2)
    try:
        async with asyncio.timeout(60), engine.begin() as connection:  # rather than wait for ever
            await connection.execute(text("SELECT count(*) FROM api_keys"))  # keeps a lock until its transaction ends
            with pytest.raises(Unavailable, match="pg_stat_activity"):
                await upgrade(database_url, wait=wait)
            upgrading = asyncio.create_task(upgrade(database_url, wait=LockWait(0.1, 0.05, 1000)))
            async with engine.begin() as other:
                await other.execute(text("SELECT count(*) FROM api_keys"))
            assert not upgrading.done()
        await upgrading
    finally:
        await engine.dispose()
    await checked(database_url)
