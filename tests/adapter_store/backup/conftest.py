"""The installation that is backed up, and others into which a backup is restored."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.backup.archive import new_archive
from loragate.adapter_store.backup.backup import back_up
from loragate.adapter_store.store import Store
from tests.adapter_store.backup.places import Place


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
async def any_place(request: pytest.FixtureRequest, elsewhere: Place) -> Place:
    """A new installation on a kind of database."""
    if request.param == "sqlite":
        return elsewhere
    server = request.getfixturevalue("postgres_server")
    await server.run("DROP DATABASE IF EXISTS restored WITH (FORCE)")
    await server.run("CREATE DATABASE restored")
    return replace(elsewhere, database_url=server.url("restored"))


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
