"""Named admin keys: several at once, each with a life of its own."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from loragate.adapter_store.auth.admin_keys import NewAdminKey
from loragate.adapter_store.auth.credentials import Plausibility
from loragate.adapter_store.auth.principal import AdminPrincipal
from loragate.adapter_store.errors import Invalid, NotFound
from loragate.adapter_store.tables.admin_keys import AdminKeyRow


async def _create(store: Any, name: str, **options: Any) -> NewAdminKey:
    async with store.admin(write=True) as admin:
        made: NewAdminKey = await admin.admin_keys.create(name, **options)
        return made


async def _principal(store: Any, key: str) -> Any:
    found = await store.authenticate(key)
    return None if found is None else found.principal


async def test_several_are_valid_at_once(store: Any) -> None:
    installation = await store.ensure_admin_key(None)
    keys = [await _create(store, name) for name in ("alice", "alice", "pipeline")]
    for new in keys:
        assert await _principal(store, new.secret) == AdminPrincipal(key_id=new.key.id)
        assert store.check_key(new.secret) is Plausibility.CHECKED
        assert new.secret not in repr(new)
    assert await _principal(store, installation) == AdminPrincipal()
    assert [principal.actor for principal in (AdminPrincipal(key_id="x"), AdminPrincipal())] == [
        "admin_key:x",
        "admin_key",
    ]


async def test_each_is_revoked_by_itself(store: Any) -> None:
    first, second = await _create(store, "first"), await _create(store, "second")
    async with store.admin(write=True) as admin:
        revoked = await admin.admin_keys.revoke(first.key.id)
        assert revoked.revoked_at is not None
        assert await admin.admin_keys.revoke(first.key.id) == revoked
        page = await admin.admin_keys.list(limit=1)
        assert ([key.id for key in page], page.has_more) == ([second.key.id], True)
        rest = await admin.admin_keys.list(after=second.key.id)
        assert [key.id for key in rest] == [first.key.id]
        events = [(event.action, event.target, event.tenant_id) for event in await admin.audit.list()]
    assert events[0] == ("admin_key.revoke", f"admin_key:{first.key.id}", None)
    assert [action for action, _, _ in events] == ["admin_key.revoke", "admin_key.create", "admin_key.create"]
    assert await _principal(store, first.secret) is None
    assert await _principal(store, second.secret) is not None


async def test_each_expires_by_itself(store: Any) -> None:
    new = await _create(store, "alice", expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert 0 < (await store.authenticate(new.secret)).seconds_left <= 3600
    async with store._database.operator(write=True) as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await session.execute(update(AdminKeyRow).where(AdminKeyRow.id == new.key.id).values(expires_at=past))
    assert await _principal(store, new.secret) is None


async def test_almost_one_is_none(store: Any) -> None:
    one, other = await _create(store, "one"), await _create(store, "other")
    swapped = f"lg-{one.key.id}-{other.secret.split('-')[2]}"
    for key in (one.secret[:-1], one.secret + "x", one.secret[:-6], swapped):
        assert await _principal(store, key) is None
    async with store._database.operator() as session:
        assert one.secret.split("-")[2] not in repr((await session.execute(select(AdminKeyRow.__table__))).all())


@pytest.mark.parametrize(
    ("name", "options", "param"),
    [
        ("", {}, "name"),
        ("a\n", {}, "name"),
        ("alice", {"expires_at": datetime(2000, 1, 1, tzinfo=UTC)}, "expires_at"),
        ("alice", {"expires_at": datetime(2100, 1, 1)}, "expires_at"),
    ],
)
async def test_bad_values_are_named(store: Any, name: str, options: Any, param: str) -> None:
    with pytest.raises(Invalid) as refused:
        await _create(store, name, **options)
    assert refused.value.param == param


async def test_missing_ones(store: Any) -> None:
    async with store.admin(write=True) as admin:
        for key_id in ("missing", "a\0b", ""):
            for work in (admin.admin_keys.get, admin.admin_keys.revoke):
                with pytest.raises(NotFound):
                    await work(key_id)


async def test_last_use_never_goes_back(store: Any) -> None:
    new = await _create(store, "alice")
    late, early = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    async with store.admin(write=True) as admin:
        await admin.admin_keys.record_use({new.key.id: late, "unknown": late})
        await admin.admin_keys.record_use({new.key.id: early})
        await admin.admin_keys.record_use({})
        assert (await admin.admin_keys.get(new.key.id)).last_used_at == late
