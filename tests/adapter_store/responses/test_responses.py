"""Stored responses on both databases: sealed, of one tenant, in chains, leased, and deleted without a trace."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.auth.secret_use import secret_uses
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, Invalid, NotFound, Unavailable
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.responses.queue import ResponseClaim
from loragate.adapter_store.responses.response import AddedItems, EndUser, NewResponse, ResponseStatus
from loragate.adapter_store.responses.sealing import TenantSeal
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.tables.responses import ConversationItemRow, StoredResponseRow
from loragate.adapter_store.tables.usage import UsageRecordRow
from tests.adapter_store.batches.test_batches import result
from tests.adapter_store.conftest import SECRET_KEY

SECRET_TEXT = "the treasure is under the oak"
ANN = EndUser("ann", "ann-hash")
TABLES = ("stored_responses", "response_events", "conversations", "conversation_items")


def new(number: int, previous: int | None = None, **fields: Any) -> NewResponse:
    """Return a response whose input and output name its number."""
    return NewResponse(
        id=f"resp_{number}",
        key_id="key1",
        model="poet",
        status=fields.pop("status", ResponseStatus.COMPLETED),
        items=[{"id": f"msg_in{number}", "content": f"in {number}: {SECRET_TEXT}"}],
        request={"user": "ann", "safety_identifier": "ann-hash"},
        document={"id": f"resp_{number}", "status": "completed", "output": [{"id": f"msg_out{number}"}]},
        end_user=ANN,
        previous_id=None if previous is None else f"resp_{previous}",
        **fields,
    )


async def call(world: Any, part: str, method: str, *arguments: Any, tenant: Any = None, **named: Any) -> Any:
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(getattr(scope, part), method)(*arguments, **named)


async def claim(world: Any, worker: str = "w1") -> ResponseClaim | None:
    async with world.store.admin(write=True) as admin:
        found: ResponseClaim | None = await admin.response_queue.claim(worker)
        return found


async def rows(world: Any, tenant: Any = None) -> dict[str, int]:
    """Return how many rows of each table the tenant has."""
    counts = {}
    async with world.store._database.operator() as session:
        for name in TABLES:
            table = Base.metadata.tables[name]
            of_tenant = table.c.tenant_id == (tenant or world.acme).id
            counts[name] = await session.scalar(select(func.count()).select_from(table).where(of_tenant))
    return {name: count for name, count in counts.items() if count}


async def test_a_chain_is_read_in_order_and_breaks_with_its_parts(world: Any) -> None:
    for number, previous in ((1, None), (2, 1), (3, 2), (4, 1)):
        await call(world, "responses", "add", new(number, previous))
    items = await call(world, "responses", "context", "resp_3")
    assert [each["id"] for each in items] == ["msg_in1", "msg_out1", "msg_in2", "msg_out2", "msg_in3", "msg_out3"]
    items = await call(world, "responses", "input_items", "resp_4")
    assert [each["id"] for each in items] == ["msg_in1", "msg_out1", "msg_in4"]
    await call(world, "responses", "delete", "resp_2")
    assert [each["id"] for each in await call(world, "responses", "input_items", "resp_3")] == ["msg_in3"]
    with pytest.raises(Invalid) as refused:
        await call(world, "responses", "context", "resp_3")
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    await call(world, "responses", "context", "resp_4")
    for method in ("get", "delete", "cancel", "request_of"):
        with pytest.raises(NotFound):
            await call(world, "responses", method, "resp_1", tenant=world.other)
    with pytest.raises(Invalid, match="does not exist"):
        await call(world, "responses", "context", "resp_1", tenant=world.other)


async def test_what_is_at_rest_is_sealed_for_its_tenant_and_place(world: Any, backend: str, tmp_path: Path) -> None:
    await call(world, "responses", "add", new(1))
    talk = await call(world, "conversations", "create", {"note": SECRET_TEXT}, [], None)
    added = AddedItems([{"id": "msg_1", "content": SECRET_TEXT}], "resp_1", ANN)
    await call(world, "conversations", "add", talk.id, added, None)
    async with world.store._database.operator() as session:
        row = (await session.scalars(select(StoredResponseRow))).one()
        item = (await session.scalars(select(ConversationItemRow))).one()
        session.expunge_all()
    stored = b"".join((row.sealed_request, row.sealed_response, item.sealed, row.user_tag, item.safety_tag))
    assert b"treasure" not in stored
    assert b"ann" not in stored
    if backend == "sqlite":
        files = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
        assert b"resp_1" in files
        assert b"treasure" not in files
        assert b"ann-hash" not in files
    secrets = world.store._secret_keys
    place = "stored_responses/resp_1/request"
    assert TenantSeal(secrets, world.acme.id).open(row.sealed_request, place)["items"]
    for seal, where in (
        (TenantSeal(secrets, world.other.id), place),
        (TenantSeal(secrets, world.acme.id), "stored_responses/resp_2/request"),
        (TenantSeal(SecretKeys(b"another secret key of 32 bytes!!"), world.acme.id), place),
    ):
        with pytest.raises(Unavailable):
            seal.open(row.sealed_request, where)


async def test_a_rotation_reseals_all_and_finds_users(world: Any, database_url: str, blob_url: str) -> None:
    await call(world, "responses", "add", new(1, status=ResponseStatus.QUEUED, background=True, streamed=True))
    held = await claim(world)
    assert held is not None
    await call(world, "response_lease", "add_events", held.id, "w1", [{"sequence_number": 0, "delta": SECRET_TEXT}])
    talk = await call(world, "conversations", "create", {}, [{"id": "msg_1"}], None)
    await call(world, "conversations", "add", talk.id, AddedItems([{"id": "msg_2"}], None, ANN), None)
    new_secret = b"the next secret key of the tests"
    old = world.store.secret_id
    rotated = await Store.open(database_url, blob_url, new_secret, previous_secret_keys=[SECRET_KEY])
    async with rotated.tenant(world.acme.id) as scope:
        assert (await scope.responses.input_items("resp_1"))[0]["id"] == "msg_in1"
    assert await sealed(rotated) == {old: 5}
    async with world.store.admin() as admin:  # a process that has not been restarted reseals nothing back
        assert await admin.response_queue.tenants_to_reseal(world.store.secret_id) == []
    async with rotated.admin() as admin:
        assert await admin.response_queue.tenants_to_reseal(rotated.secret_id) == [world.acme.id]
    async with rotated.tenant(world.acme.id, write=True) as scope:
        assert await scope.resealing.some() == 5
        assert await scope.resealing.some() == 0
    assert await sealed(rotated) == {rotated.secret_id: 5}
    await rotated.close()
    later = await Store.open(database_url, blob_url, new_secret)
    async with later.tenant(world.acme.id, write=True) as scope:
        assert (await scope.responses.input_items("resp_1"))[0]["id"] == "msg_in1"
        assert (await scope.responses.events("resp_1", -1))[0]["delta"] == SECRET_TEXT
        assert await scope.responses.delete_some_of("safety_identifier", "ann-hash") == 2
    await later.close()
    assert await rows(world) == {"conversations": 1, "conversation_items": 1}


async def sealed(store: Store) -> dict[str, int]:
    """Return how many rows are sealed with each secret."""
    async with store._database.operator() as session:
        return {each.id: each.sealed for each in await secret_uses(session, store._secret_keys) if each.sealed}


async def test_deletion_leaves_nothing(world: Any) -> None:
    talk = await call(world, "conversations", "create", {}, [{"id": "msg_1"}], None)
    for number in (1, 2):
        await call(world, "responses", "add", new(number, background=True, streamed=True, conversation_id=talk.id))
        await call(world, "conversations", "add", talk.id, AddedItems([{"id": "x"}], f"resp_{number}", ANN), None)
    await call(world, "responses", "add", new(1), tenant=world.other)
    before = (await call(world, "conversations", "get", talk.id)).size_bytes
    await call(world, "responses", "delete", "resp_1")
    assert await rows(world) == {"stored_responses": 1, "conversations": 1, "conversation_items": 2}
    assert (await call(world, "conversations", "get", talk.id)).size_bytes < before
    assert await call(world, "responses", "delete_some_of", "user", "bob") == 0
    assert await call(world, "responses", "delete_some_of", "user", "ann") == 1
    assert await rows(world) == {"conversations": 1, "conversation_items": 1}
    await call(world, "responses", "add", new(3))
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.acme.id)
    async with world.store.admin(write=True) as admin:
        while await admin.response_queue.purge_deleted_tenants(1):
            pass
    assert await rows(world) == {}
    assert await rows(world, world.other) == {"stored_responses": 1}


async def test_what_expires_is_purged_once_it_has_ended(world: Any) -> None:
    day = timedelta(days=1)
    await call(world, "responses", "add", new(1, lifetime=day))
    await call(world, "responses", "add", new(2, lifetime=day, status=ResponseStatus.QUEUED, background=True))
    await call(world, "responses", "add", new(3))
    await call(world, "conversations", "create", {}, [{"id": "msg_1"}], day)
    async with world.store.admin(write=True) as admin:
        assert await admin.response_queue.purge_responses(10) == 0
        assert await admin.response_queue.waiting() == (1, pytest.approx(0, abs=60))
        use = await admin.response_queue.use()
        assert (use.responses, use.conversations) == (3, 1)
        assert use.size_bytes > 0
    async with world.store._database.operator(write=True) as session:
        await session.execute(
            update(StoredResponseRow).where(StoredResponseRow.expires_at.is_not(None)).values(expires_at=database_now())
        )
        await session.execute(update(Base.metadata.tables["conversations"]).values(expires_at=database_now()))
    async with world.store.admin(write=True) as admin:
        assert await admin.response_queue.purge_responses(10) == 1
        assert await admin.response_queue.purge_conversations(10) == 1
    assert await rows(world) == {"stored_responses": 2}
    page = await call(world, "responses", "list")
    assert [each.id for each in page] == ["resp_3", "resp_2"]


async def test_a_background_response_ends_once_with_its_usage(world: Any) -> None:
    await call(world, "responses", "add", new(1, status=ResponseStatus.QUEUED, background=True, streamed=True))
    first = await claim(world, "w1")
    assert first is not None
    assert await claim(world, "w2") is None
    await call(world, "response_lease", "start", "resp_1", "w1", new(1).document)
    await call(world, "response_lease", "add_events", "resp_1", "w1", [{"sequence_number": 0}, {"sequence_number": 1}])
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(StoredResponseRow).values(held_until=database_now()))
    second = await claim(world, "w2")
    assert second is not None
    assert second.attempts == 2
    usage = result(world, 1).usage
    with pytest.raises(LeaseLost):
        await call(world, "response_lease", "finish", "resp_1", "w1", new(1).document, usage)
    state = await call(world, "response_lease", "start", "resp_1", "w2", new(1).document)
    assert state.next_event == 2
    assert await call(world, "responses", "events", "resp_1", -1) == []
    last = [{"sequence_number": 2}]
    assert await call(world, "response_lease", "finish", "resp_1", "w2", new(1).document, usage, last) == "completed"
    with pytest.raises(LeaseLost):
        await call(world, "response_lease", "finish", "resp_1", "w2", new(1).document, usage)
    assert await call(world, "responses", "events", "resp_1", 1) == last
    assert await claim(world, "w3") is None
    async with world.store._database.operator() as session:
        assert await session.scalar(select(func.count()).select_from(UsageRecordRow)) == 1


async def test_a_cancelled_response_stays_cancelled(world: Any) -> None:
    await call(world, "responses", "add", new(1, status=ResponseStatus.QUEUED, background=True))
    assert await claim(world) is not None
    assert (await call(world, "responses", "cancel", "resp_1")).status == "cancelled"
    assert (await call(world, "response_lease", "renew", "resp_1", "w1")).status == "cancelled"
    assert await call(world, "response_lease", "finish", "resp_1", "w1", new(1).document, None) == "cancelled"
    stored = await call(world, "responses", "get", "resp_1")
    assert (stored.status, stored.document["status"], len(stored.document["output"])) == ("cancelled", "cancelled", 1)
    await call(world, "responses", "add", new(2))
    with pytest.raises(Invalid, match="background=true"):
        await call(world, "responses", "cancel", "resp_2")


async def test_quotas_count_what_is_stored(world: Any) -> None:
    async def limit(**limits: int | None) -> None:
        async with world.store.admin(write=True) as admin:
            await admin.tenants.update(world.acme.id, limits=limits)

    await call(world, "responses", "add", new(1))
    await limit(max_stored_responses=1)
    for part, method, arguments in (
        ("responses", "check_room", ()),
        ("responses", "add", (new(2),)),
        ("conversations", "create", ({}, [], None)),
    ):
        with pytest.raises(Conflict, match="max_stored_responses"):
            await call(world, part, method, *arguments)
    used = (await call(world, "responses", "use")).size_bytes
    await limit(max_stored_responses=None, max_storage_bytes=used + 10)
    with pytest.raises(Conflict, match="max_storage_bytes"):
        await call(world, "responses", "add", new(2))
    await call(world, "responses", "add", new(1), tenant=world.other)


async def test_the_items_of_a_conversation(world: Any) -> None:
    talk = await call(world, "conversations", "create", {"a": "b"}, [{"id": f"msg_{n}"} for n in range(3)], None)
    page = await call(world, "conversations", "items", talk.id, after="msg_2", limit=1)
    assert ([each["id"] for each in page], page.has_more) == (["msg_1"], True)
    page = await call(world, "conversations", "items", talk.id, after="msg_0", limit=5, ascending=True)
    assert [each["id"] for each in page] == ["msg_1", "msg_2"]
    await call(world, "conversations", "delete_item", talk.id, "msg_1")
    assert [each["id"] for each in await call(world, "conversations", "context", talk.id)] == ["msg_0", "msg_2"]
    with pytest.raises(NotFound):
        await call(world, "conversations", "item", talk.id, "msg_1")
    for method in ("get", "delete", "context"):
        with pytest.raises(NotFound):
            await call(world, "conversations", method, talk.id, tenant=world.other)
    assert (await call(world, "conversations", "update", talk.id, {"c": "d"})).metadata == {"c": "d"}
    await call(world, "conversations", "delete", talk.id)
    assert await rows(world) == {}
