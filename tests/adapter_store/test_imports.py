"""What is written down about imports, on both databases."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store import imports
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.failure import Failure
from loragate.adapter_store.imports import ImportStatus
from loragate.adapter_store.tables import AdapterImportRow

SOURCE = "hf://acme/poet@" + "0" * 40
FAILURE = Failure("source_not_found", "It is not there.", "source")


async def _asked(world: Any, method: str, *arguments: Any, tenant: Any = None) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.imports, method)(*arguments)


async def _begun(world: Any, tenant: Any = None) -> Any:
    return await _asked(world, "create", SOURCE, "poet", None, tenant=tenant)


async def test_an_imports_life(world: Any) -> None:
    begun = await _begun(world)
    assert (begun.status, begun.alias, begun.bytes_done, begun.version) == (ImportStatus.QUEUED, "default", 0, None)
    assert await _asked(world, "progress", begun.id, ImportStatus.FETCHING, 10, 100)
    found = await _asked(world, "get", begun.id)
    assert (found.status, found.bytes_done, found.bytes_total) == (ImportStatus.FETCHING, 10, 100)
    await _asked(world, "finish", begun.id, 7)
    await _asked(world, "fail", begun.id, FAILURE)  # too late
    done = await _asked(world, "get", begun.id)
    assert (done.status, done.version, done.error) == (ImportStatus.READY, 7, None)
    assert not await _asked(world, "progress", begun.id, ImportStatus.CHECKING, 10, 100)


async def test_one_that_fails_says_why(world: Any) -> None:
    begun = await _begun(world)
    await _asked(world, "fail", begun.id, FAILURE)
    found = await _asked(world, "get", begun.id)
    assert (found.status, found.error) == (ImportStatus.FAILED, FAILURE)
    with pytest.raises(Conflict, match="failed"):
        await _asked(world, "cancel", begun.id)


async def test_one_is_cancelled_once_and_before_it_is_checked(world: Any) -> None:
    begun, checked = await _begun(world), await _begun(world)
    for _ in range(2):
        assert (await _asked(world, "cancel", begun.id)).status is ImportStatus.CANCELLED
    assert not await _asked(world, "progress", begun.id, ImportStatus.FETCHING, 1, 2)
    await _asked(world, "progress", checked.id, ImportStatus.CHECKING, 1, 2)
    with pytest.raises(Conflict, match="checking"):
        await _asked(world, "cancel", checked.id)
    async with world.store.admin() as admin:
        events = [event for event in await admin.audit.list(limit=100) if event.action.startswith("import.")]
    assert [event.action for event in events] == ["import.cancel", "import.create", "import.create"]


async def test_one_that_nobody_works_on_any_more_has_failed(world: Any) -> None:
    """And takes no other's place."""
    for _ in range(imports._MOST_AT_ONCE):
        begun = await _begun(world)
    with pytest.raises(Conflict) as full:
        await _begun(world)
    assert full.value.code == "too_many_imports"
    await _begun(world, world.other)
    async with world.store._database.operator(write=True) as session:
        earlier = begun.updated_at - imports.SILENCE - timedelta(seconds=1)
        await session.execute(update(AdapterImportRow).values(updated_at=earlier))
    found = await _asked(world, "get", begun.id)
    assert found.status is ImportStatus.FAILED
    assert found.error is not None
    assert found.error.code == "import_interrupted"
    with pytest.raises(Conflict):
        await _asked(world, "cancel", begun.id)
    await _begun(world)


async def test_what_is_long_over_is_forgotten(world: Any) -> None:
    """At the tenant's next one, and its own only."""
    old, others = await _begun(world), await _begun(world, world.other)
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterImportRow).values(created_at=old.created_at - imports.KEPT))
    new = await _begun(world)
    assert [found.id for found in await _asked(world, "list")] == [new.id]
    assert (await _asked(world, "get", others.id, tenant=world.other)).id == others.id


async def test_they_are_listed_newest_first(world: Any) -> None:
    begun = [(await _begun(world)).id for _ in range(3)]
    first = await _asked(world, "list")
    assert [found.id for found in first] == begun[::-1]
    async with world.store.tenant(world.acme.id) as scope:
        page = await scope.imports.list(limit=2)
        rest = await scope.imports.list(after=page.items[-1].id)
    assert (page.has_more, [found.id for found in rest]) == (True, begun[:1])


async def test_another_tenants_is_not_there(world: Any) -> None:
    begun = await _begun(world)
    for method in ("get", "cancel"):
        with pytest.raises(NotFound):
            await _asked(world, method, begun.id, tenant=world.other)
    assert not await _asked(world, "progress", begun.id, ImportStatus.FETCHING, 1, 2, tenant=world.other)
    await _asked(world, "finish", begun.id, 1, tenant=world.other)
    await _asked(world, "fail", begun.id, FAILURE, tenant=world.other)
    assert len(await _asked(world, "list", tenant=world.other)) == 0
    assert (await _asked(world, "get", begun.id)).status is ImportStatus.QUEUED


@pytest.mark.parametrize(("name", "alias"), [("a b", None), ("", None), ("ft:x", None), ("poet", "7"), ("poet", "a b")])
async def test_names_that_no_adapter_has(world: Any, name: str, alias: str | None) -> None:
    with pytest.raises(Invalid):
        await _asked(world, "create", SOURCE, name, alias)
