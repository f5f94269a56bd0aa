"""The stored state of imports, on both databases."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.errors import AdapterInvalid, Conflict, Failure, Invalid, NotFound, NotTried
from loragate.adapter_store.imports import repository as imports
from loragate.adapter_store.imports.lease import MAX_ATTEMPTS
from loragate.adapter_store.imports.rows import INTERRUPTED, ImportStatus
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.tables.adapters import AdapterImportRow
from loragate.adapter_store.timestamps import utc_now
from tests.adapter_store.conftest import HeldProbe

SOURCE = "hf://acme/poet@" + "0" * 40
FAILURE = Failure("source_not_found", "It is not there.", "source")


async def _as_tenant(world: Any, method: str, *arguments: Any, tenant: Any = None) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.imports, method)(*arguments)


async def _as_worker(world: Any, method: str, *arguments: Any, tenant: Any = None) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.import_lease, method)(*arguments)


async def _started(world: Any, tenant: Any = None, *, resumable: bool = True) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await scope.imports.create(SOURCE, "poet", None, resumable=resumable)


async def _expire_leases(world: Any) -> None:
    """Make all imports look a minute without progress."""
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterImportRow).values(updated_at=utc_now() - imports.IDLE_TIMEOUT))


async def _publish(world: Any, wanted: Any, probe: Any = no_probe) -> Any:
    upload = world.make_upload()
    async with world.store.tenant(world.acme.id, write=True) as scope:
        return await scope.publisher.publish(
            "poet", upload.config, upload.file(), probe=probe, may_wait=True, wanted_by=wanted
        )


async def _rejecting(tenant_id: str, staged: Any) -> None:
    raise AdapterInvalid("it gives NaN")


async def _unavailable(tenant_id: str, staged: Any) -> None:
    raise NotTried("the engine is away")


async def test_an_imports_life(world: Any) -> None:
    begun = await _started(world)
    assert (begun.status, begun.alias, begun.bytes_done, begun.version) == (ImportStatus.QUEUED, "default", 0, None)
    assert await _as_worker(world, "progress", begun, ImportStatus.FETCHING, 10, 100)
    found = await _as_tenant(world, "get", begun.id)
    assert (found.status, found.bytes_done, found.bytes_total) == (ImportStatus.FETCHING, 10, 100)
    await _as_worker(world, "finish", begun, 7)
    await _as_worker(world, "fail", begun, FAILURE)  # too late
    done = await _as_tenant(world, "get", begun.id)
    assert (done.status, done.version, done.error) == (ImportStatus.READY, 7, None)
    assert not await _as_worker(world, "progress", begun, ImportStatus.CHECKING, 10, 100)


async def test_an_import_goes_on_with_the_key_that_its_key_was_rotated_to(world: Any) -> None:
    async with world.store.admin(write=True) as admin:
        key = (await admin.keys.create(world.acme.id, scopes=["adapters:write"])).key
    async with world.store.tenant(world.acme.id, write=True, by=Actor(f"api_key:{key.id}")) as scope:
        begun = await scope.imports.create(SOURCE, "poet", None, resumable=True)
    for _ in range(2):
        async with world.store.admin(write=True) as admin:
            key = (await admin.keys.rotate(key.id)).key
    assert await _as_worker(world, "progress", begun, ImportStatus.FETCHING, 10, 100)
    await _expire_leases(world)
    taken = await _as_worker(world, "take", begun.id)
    assert taken is not None
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(key.id)
    assert not await _as_worker(world, "progress", taken.wanted, ImportStatus.FETCHING, 10, 100)
    found = await _as_tenant(world, "get", begun.id)
    assert (found.status, found.error.code) == (ImportStatus.FAILED, "key_revoked")


async def test_a_failed_import_has_its_reason(world: Any) -> None:
    begun = await _started(world)
    await _as_worker(world, "fail", begun, FAILURE)
    found = await _as_tenant(world, "get", begun.id)
    assert (found.status, found.error) == (ImportStatus.FAILED, FAILURE)
    with pytest.raises(Conflict, match="failed"):
        await _as_tenant(world, "cancel", begun.id)


async def test_an_import_is_cancelled_once_and_before_verification(world: Any) -> None:
    begun, checked = await _started(world), await _started(world)
    for _ in range(2):
        assert (await _as_tenant(world, "cancel", begun.id)).status is ImportStatus.CANCELLED
    assert not await _as_worker(world, "progress", begun, ImportStatus.FETCHING, 1, 2)
    await _as_worker(world, "progress", checked, ImportStatus.CHECKING, 1, 2)
    with pytest.raises(Conflict, match="checking"):
        await _as_tenant(world, "cancel", checked.id)
    async with world.store.admin() as admin:
        events = [event for event in await admin.audit.list(limit=100) if event.action.startswith("import.")]
    assert [event.action for event in events] == ["import.cancel", "import.create", "import.create"]


async def test_an_import_with_a_token_fails_with_its_process(world: Any) -> None:
    """It does not count as another's."""
    for _ in range(imports._MAX_RUNNING):
        begun = await _started(world, resumable=False)
    with pytest.raises(Conflict) as full:
        await _started(world)
    assert full.value.code == "too_many_imports"
    await _started(world, world.other)
    await _expire_leases(world)
    found = await _as_tenant(world, "get", begun.id)
    assert (found.status, found.error) == (ImportStatus.FAILED, INTERRUPTED)
    with pytest.raises(Conflict):
        await _as_tenant(world, "cancel", begun.id)
    assert await _as_worker(world, "take", begun.id) is None
    assert (await _as_tenant(world, "get", begun.id)).error == INTERRUPTED
    await _started(world)


async def test_an_import_whose_process_died_is_taken_once(world: Any) -> None:
    """One of several processes takes it; writes of the previous process are rejected."""
    begun = await _started(world)
    async with world.store.admin() as admin:
        assert await admin.published.next_import() is None
    await _as_worker(world, "progress", begun, ImportStatus.CHECKING, 5, 10)
    await _expire_leases(world)
    assert (await _as_tenant(world, "get", begun.id)).status is ImportStatus.QUEUED
    async with world.store.admin() as admin:
        waiting = await admin.published.next_import()
    assert (waiting.tenant_id, waiting.import_id) == (world.acme.id, begun.id)
    [taken] = [each for each in await asyncio.gather(*(_as_worker(world, "take", begun.id) for _ in range(3))) if each]
    assert (taken.actor, taken.wanted.source) == ("system", SOURCE)
    assert not await _as_worker(world, "progress", begun, ImportStatus.FETCHING, 6, 10)
    await _as_worker(world, "fail", begun, FAILURE)
    with pytest.raises(Conflict) as lost:
        await _publish(world, begun)
    assert lost.value.code == "import_lost"
    assert await _as_worker(world, "progress", taken.wanted, ImportStatus.FETCHING, 7, 10)
    assert (await _publish(world, taken.wanted)).version == 1
    await _as_worker(world, "finish", taken.wanted, 1)
    assert (await _as_tenant(world, "get", begun.id)).version == 1


async def test_an_import_without_a_process_can_be_cancelled(world: Any) -> None:
    begun = await _started(world)
    await _as_worker(world, "progress", begun, ImportStatus.CHECKING, 5, 10)
    await _expire_leases(world)
    assert (await _as_tenant(world, "cancel", begun.id)).status is ImportStatus.CANCELLED
    assert await _as_worker(world, "take", begun.id) is None


async def test_an_import_that_kills_every_server_is_given_up(world: Any) -> None:
    begun = await _started(world)
    for _ in range(MAX_ATTEMPTS):
        await _expire_leases(world)
        assert await _as_worker(world, "take", begun.id) is not None
    await _expire_leases(world)
    assert await _as_worker(world, "take", begun.id) is None
    found = await _as_tenant(world, "get", begun.id)
    assert (found.status, found.error.code) == (ImportStatus.FAILED, "import_interrupted")


async def test_an_import_that_has_its_version_is_not_repeated(world: Any) -> None:
    """Its process died before it could record the result, with an engine or without."""
    for probe, status in ((no_probe, VersionStatus.READY), (_unavailable, VersionStatus.VERIFYING)):
        begun = await _started(world)
        version = await _publish(world, begun, probe)
        assert version.status is status
        await _as_worker(world, "fail", begun, FAILURE)  # it has not failed
        with pytest.raises(Conflict):
            await _publish(world, begun)
        await _expire_leases(world)
        assert (await _as_tenant(world, "get", begun.id)).version is None
        assert await _as_worker(world, "take", begun.id) is None
        done = await _as_tenant(world, "get", begun.id)
        assert (done.status, done.version) == (ImportStatus.READY, version.version)


async def test_a_rejected_import_has_its_reason_in_every_process(world: Any) -> None:
    begun = await _started(world)
    with pytest.raises(AdapterInvalid):
        await _publish(world, begun, _rejecting)
    await _expire_leases(world)
    assert await _as_worker(world, "take", begun.id) is None
    failed = await _as_tenant(world, "get", begun.id)
    assert (failed.status, failed.error.message) == (ImportStatus.FAILED, "It was rejected: it gives NaN.")


async def test_a_stopped_imports_verification_is_continued_by_others(world: Any) -> None:
    begun, probe = await _started(world), HeldProbe()
    publishing = asyncio.create_task(_publish(world, begun, probe))
    await probe.asked.wait()
    async with world.store.admin() as admin:
        assert await admin.published.next_due() is None, "it is being tried"
    publishing.cancel()
    await asyncio.wait([publishing])
    async with world.store.admin() as admin:
        due = await admin.published.next_due()
    async with world.store.tenant(world.acme.id, write=True) as scope:
        done = await scope.publisher.finish(due.adapter_id, due.version, no_probe)
    assert done.status is VersionStatus.READY


async def test_old_imports_are_deleted(world: Any) -> None:
    """On the tenant's next import, and only its own."""
    old, others = await _started(world), await _started(world, world.other)
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(AdapterImportRow).values(created_at=old.created_at - imports.RETENTION))
    new = await _started(world)
    assert [found.id for found in await _as_tenant(world, "list")] == [new.id]
    assert (await _as_tenant(world, "get", others.id, tenant=world.other)).id == others.id


async def test_imports_are_listed_newest_first(world: Any) -> None:
    begun = [(await _started(world)).id for _ in range(3)]
    first = await _as_tenant(world, "list")
    assert [found.id for found in first] == begun[::-1]
    async with world.store.tenant(world.acme.id) as scope:
        page = await scope.imports.list(limit=2)
        rest = await scope.imports.list(after=page.items[-1].id)
    assert (page.has_more, [found.id for found in rest]) == (True, begun[:1])


async def test_another_tenants_import_is_not_found(world: Any) -> None:
    begun = await _started(world)
    for method in ("get", "cancel"):
        with pytest.raises(NotFound):
            await _as_tenant(world, method, begun.id, tenant=world.other)
    assert not await _as_worker(world, "progress", begun, ImportStatus.FETCHING, 1, 2, tenant=world.other)
    await _as_worker(world, "finish", begun, 1, tenant=world.other)
    await _as_worker(world, "fail", begun, FAILURE, tenant=world.other)
    assert len(await _as_tenant(world, "list", tenant=world.other)) == 0
    assert (await _as_tenant(world, "get", begun.id)).status is ImportStatus.QUEUED


@pytest.mark.parametrize(("name", "alias"), [("a b", None), ("", None), ("ft:x", None), ("poet", "7"), ("poet", "a b")])
async def test_invalid_adapter_names_are_rejected(world: Any, name: str, alias: str | None) -> None:
    with pytest.raises(Invalid):
        await _as_tenant(world, "create", SOURCE, name, alias)
