from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.errors import Invalid, StoreError
from loragate.adapter_store.publishing.probe import no_probe

ALICE = Actor("oidc:alice", "req_1")


async def _events(world: Any, **filters: Any) -> list[Any]:
    async with world.store.admin() as admin:
        return list(reversed((await admin.audit.list(limit=100, **filters)).items))


async def test_every_action_of_the_operator_is_recorded(world: Any) -> None:
    async with world.store.admin(write=True, by=ALICE) as admin:
        tenant = await admin.tenants.create("new", weight=2.0)
        await admin.tenants.update(tenant.id, name="newer")
        await admin.tenants.update(tenant.id, weight=2.0)  # unchanged: not an action
        first = await admin.keys.create(tenant.id, name="ci")
        second = await admin.keys.rotate(first.key.id, grace_seconds=60)
        third = await admin.keys.rotate(second.key.id)
        await admin.keys.revoke(third.key.id)
        await admin.keys.revoke(third.key.id)  # again: not an action
        await admin.tenants.delete(tenant.id)
    events = await _events(world, actor="oidc:alice")
    assert [event.action for event in events] == [
        "tenant.create",
        "tenant.update",
        "api_key.create",
        "api_key.expire",
        "api_key.rotate",
        "api_key.revoke",
        "api_key.rotate",
        "api_key.revoke",
        "tenant.delete",
    ]
    assert {event.tenant_id for event in events} == {tenant.id}
    assert {event.request_id for event in events} == {"req_1"}
    created, updated, key, expire, *_, deleted = events
    assert created.before is None
    assert (created.after["name"], created.after["weight"]) == ("new", 2.0)
    assert (updated.before, updated.after) == ({"name": "new"}, {"name": "newer"})
    assert key.target == f"api_key:{first.key.id}"
    assert key.after["scopes"] == ["all"]
    assert (expire.before, expire.after.keys()) == ({"expires_at": None}, {"expires_at"})
    assert (deleted.before["name"], deleted.after) == ("newer", None)
    whole = orjson.dumps(events).decode()
    for made in (first, second, third):
        assert made.secret.rsplit("-", 1)[1] not in whole


async def test_tenant_actions_that_change_what_is_served_are_recorded(world: Any) -> None:
    upload = world.make_upload()
    by = Actor("api_key:abc", "req_2")
    async with world.store.tenant(world.acme.id, write=True, by=by) as scope:
        await scope.publisher.publish("poet", upload.config, upload.file(), probe=no_probe)
    async with world.store.tenant(world.acme.id, write=True, by=by) as scope:
        await scope.publisher.publish("poet", upload.config, upload.file(), alias="canary", probe=no_probe)
    async with world.store.tenant(world.acme.id, write=True, by=by) as scope:
        await scope.adapters.set_alias("poet", "default", [AliasTarget(2, 9), AliasTarget(1, 1)])
        await scope.adapters.set_alias("poet", "default", [AliasTarget(2)])
        await scope.adapters.delete_version("poet", 1)
        await scope.adapters.delete("poet")
    events = await _events(world, tenant_id=world.acme.id, actor="api_key:abc")
    assert [(event.action, event.target) for event in events] == [
        ("adapter_version.create", "adapter_version:poet:1"),
        ("alias.set", "alias:poet@default"),
        ("adapter_version.create", "adapter_version:poet:2"),
        ("alias.set", "alias:poet@canary"),
        ("alias.set", "alias:poet@default"),
        ("alias.set", "alias:poet@default"),
        ("adapter_version.delete", "adapter_version:poet:1"),
        ("adapter.delete", "adapter:poet"),
    ]
    assert events[1].before is None
    assert events[4].before == {"targets": [{"version": 1, "weight": 1}]}
    assert events[4].after == {"targets": [{"version": 1, "weight": 1}, {"version": 2, "weight": 9}]}


async def test_the_admin_key_is_recorded_only_when_it_changes(store: Any, world: Any) -> None:
    for key in ("a" * 24, "a" * 24, "b" * 24):
        await store.set_admin_key(key)
    events = await _events(world, action="admin_key.set")
    assert [(event.actor, event.tenant_id, event.request_id) for event in events] == [("system", None, None)] * 2
    assert "aaa" not in orjson.dumps(events).decode()


async def test_a_rolled_back_action_is_not_recorded(world: Any) -> None:
    before = await _events(world)

    async def create_and_fail() -> None:
        async with world.store.admin(write=True) as admin:
            await admin.tenants.create("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await create_and_fail()
    assert await _events(world) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET actor = 'unknown'",
        "DELETE FROM audit_log",
        "DELETE FROM audit_log WHERE action = 'tenant.create'",
        "TRUNCATE audit_log",
    ],
)
async def test_the_database_rejects_changes_of_the_log(world: Any, statement: str, backend: str) -> None:
    if statement.startswith("TRUNCATE") and backend == "sqlite":
        pytest.skip("SQLite has no TRUNCATE")
    before = await _events(world)
    assert before
    with pytest.raises((DBAPIError, StoreError)) as rejected:
        async with world.store._database.operator(write=True) as session:
            await session.execute(text(statement))
    assert "append-only" in str(rejected.value.__cause__ or rejected.value)
    assert await _events(world) == before


async def test_filters_and_pages(world: Any) -> None:
    for tenant in (world.acme, world.other, world.acme):
        async with world.store.admin(write=True, by=ALICE) as admin:
            await admin.keys.create(tenant.id)
    everything = await _events(world)
    assert [event.action for event in everything] == ["tenant.create"] * 2 + ["api_key.create"] * 3
    assert len(await _events(world, tenant_id=world.acme.id)) == 3
    assert len(await _events(world, action="api_key.create", tenant_id=world.acme.id)) == 2
    moment = everything[3].created_at
    assert await _events(world, since=moment) == everything[3:]
    assert await _events(world, until=moment) == everything[:3]
    assert await _events(world, since=moment, until=moment + timedelta(microseconds=1)) == [everything[3]]
    async with world.store.admin() as admin:
        first = await admin.audit.list(limit=3)
        rest = await admin.audit.list(limit=3, after=first.items[-1].id)
        assert [*first, *rest] == everything[::-1]
        assert (first.has_more, rest.has_more) == (True, False)
        with pytest.raises(Invalid):
            await admin.audit.list(after="au_none")


async def test_a_tenant_administrator_reads_only_its_own_log(world: Any) -> None:
    async with world.store.admin(within=world.acme.id) as admin:
        assert [event.tenant_id for event in await admin.audit.list()] == [world.acme.id]
        assert len(await admin.audit.list(tenant_id=world.other.id)) == 0


async def test_old_events_leave_by_their_age_only(world: Any) -> None:
    """The database still rejects the removal of younger ones, and the removal is an event itself."""
    before = await _events(world)
    async with world.store.admin(write=True) as admin:
        assert await admin.audit.purge(before[-1].created_at, 100) == len(before) - 1
    left = await _events(world)
    assert left[0].id == before[-1].id
    assert left[-1].action == "audit_log.purge"
    assert left[-1].after["events"] == len(before) - 1
    with pytest.raises((DBAPIError, StoreError)) as refused:
        async with world.store._database.operator(write=True) as session:
            await session.execute(text("DELETE FROM audit_log"))
    assert "append-only" in str(refused.value.__cause__ or refused.value)
    assert await _events(world) == left


async def test_long_texts_are_shortened(world: Any) -> None:
    await world.publish("support", description="a" * 2000)
    async with world.adapters(write=True) as adapters:
        await adapters.update("support", description="b" * 2000)
    event = (await _events(world, action="adapter.update"))[-1]
    recorded = orjson.dumps([event.before, event.after]).decode()
    assert len(recorded) < 1500
    assert "(2000 characters, sha256:" in recorded
