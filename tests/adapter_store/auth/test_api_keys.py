import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import literal, select, update

from loragate.adapter_store import timestamps
from loragate.adapter_store.auth import authentication
from loragate.adapter_store.auth.credentials import KeyFormat, Plausibility, public_id_of
from loragate.adapter_store.auth.principal import AdminPrincipal, Scope, TenantPrincipal
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, Invalid, NotFound
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.base import UtcDateTime
from loragate.adapter_store.tables.tenants import ApiKeyRow
from tests.adapter_store.conftest import SECRET_KEY


async def _create(world: Any, **options: Any) -> Any:
    async with world.store.admin(write=True) as admin:
        return await admin.keys.create(world.acme.id, **options)


async def test_a_key_authenticates_its_tenant(world: Any) -> None:
    made = await _create(world, name="laptop", scopes=["inference"])
    assert re.fullmatch(r"lg-[0-9A-Za-z]+-[0-9A-Za-z]{27,}", made.secret)
    snapshot = await world.store.authenticate(made.secret)
    assert snapshot.seconds_left == math.inf
    assert snapshot.principal == TenantPrincipal(
        tenant_id=world.acme.id,
        tenant_name="acme",
        weight=1.0,
        key_id=made.key.id,
        scopes=frozenset({Scope.INFERENCE}),
    )
    assert snapshot.principal.allows(Scope.INFERENCE)
    assert not snapshot.principal.allows(Scope.ADAPTERS_WRITE)


async def test_the_secret_is_neither_stored_nor_shown(world: Any) -> None:
    made = await _create(world)
    secret = made.secret.rsplit("-", 1)[1]
    assert secret not in repr(made)
    async with world.store._database.operator() as session:
        row = (await session.execute(select(*ApiKeyRow.__table__.columns))).one()
    assert made.key.id in repr(row)
    assert secret not in repr(row)


async def test_almost_a_key_is_rejected(world: Any) -> None:
    made = await _create(world)
    secret = made.secret
    other = await _create(world)
    swapped = "-".join((*secret.split("-")[:2], other.secret.split("-")[2]))
    wrong = [
        secret[:-1],
        secret + "x",
        secret.swapcase(),
        secret.replace("lg-", "LG-"),
        secret.rsplit("-", 1)[0],
        swapped,
        "",
        "lg--",
        "lg-' OR 1=1 --",
        "\0",
        "\ud800",
        "ключ" * 10,
        "x" * 1_000_000,
    ]
    for key in wrong:
        assert await world.store.authenticate(key) is None, key[:50]
    assert await world.store.authenticate(secret) is not None


async def test_a_key_is_recognized_by_its_checksum(world: Any) -> None:
    key = (await _create(world)).secret
    assert world.store.check_key(key) is Plausibility.CHECKED
    for position in range(len(key)):
        changed = key[:position] + ("a" if key[position] != "a" else "b") + key[position + 1 :]
        assert world.store.check_key(changed) is not Plausibility.CHECKED, position
    for other in (KeyFormat(bytes(32)).new_key().whole, key[:-6] + "000000", "", "lg-a-b", "x" * 257, "\ud800" * 30):
        assert world.store.check_key(other) is Plausibility.NONE, other[:80]


async def test_checksums_stay_right(world: Any, database_url: str, blob_url: str) -> None:
    """All processes compute the same ones."""
    key = (await _create(world)).secret
    other = await Store.open(database_url, blob_url, SECRET_KEY)
    try:
        assert other.check_key(key) is Plausibility.CHECKED
    finally:
        await other.close()


async def test_keys_from_before_the_checksum_stay_valid(world: Any) -> None:
    made = await _create(world)
    old = f"lg-{made.key.id}-{'a' * 32}"
    async with world.store._database.operator(write=True) as session:
        hashed = world.store._hasher.hash(old)
        await session.execute(update(ApiKeyRow).where(ApiKeyRow.id == made.key.id).values(key_hash=hashed))
    assert world.store.check_key(old) is Plausibility.UNKNOWN
    assert (await world.store.authenticate(old)).principal.key_id == made.key.id
    assert await world.store.authenticate(made.secret) is None


async def test_the_admin_key_is_recognized(store: Any) -> None:
    for key in (
        await store.ensure_admin_key(None),
        "chosen by the operator, as words",
        "lg-" + 27 * "a" + "-" + 27 * "b",
    ):
        await store.set_admin_key(key)
        assert await store.authenticate(key) is not None
        assert store.check_key(key) is Plausibility.CHECKED
        assert store.check_key(f"{key}x") is not Plausibility.CHECKED


async def test_scanners_find_keys(world: Any) -> None:
    """By the expressions of the documentation."""
    page = (Path(__file__).parents[3] / "docs/authentication.md").read_text()
    [new] = re.findall(r"`(\\blg-[^`]*38[^`]*)`", page)
    [old] = re.findall(r"`(\\blg-[^`]*32[^`]*)`", page)
    key = (await _create(world)).secret
    assert re.findall(new, f"LORAGATE_API_KEY={key}\n") == [key]
    assert re.findall(old, f'"{key[:-6]}"') == [key[:-6]]
    assert not re.findall(old, key)


def test_only_a_complete_key_has_a_public_id() -> None:
    assert public_id_of("lg-abc-def") == "abc"
    for text in ("lg-abc", "lg-a-b-c", "sk-abc-def", "lg-ä-b", "lg-a-", "lg--a", "lg-a b-c"):
        assert public_id_of(text) is None


async def test_a_revoked_key_stops_working_at_once(world: Any) -> None:
    made = await _create(world)
    async with world.store.admin(write=True) as admin:
        revoked = await admin.keys.revoke(made.key.id)
        assert await admin.keys.revoke(made.key.id) == revoked
        with pytest.raises(Conflict):
            await admin.keys.rotate(made.key.id)
    assert await world.store.authenticate(made.secret) is None


async def test_an_expired_key_stops_working(world: Any) -> None:
    made = await _create(world, expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert await world.store.authenticate(made.secret) is not None
    await _expire(world, made.key.id)
    assert await world.store.authenticate(made.secret) is None


async def _expire(world: Any, key_id: str) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    async with world.store._database.operator(write=True) as session:
        await session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(expires_at=past))


async def test_expiry_is_the_same_instant_in_any_time_zone(world: Any) -> None:
    from datetime import timezone

    expires_at = datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    made = await _create(world, expires_at=expires_at)
    assert made.key.expires_at == expires_at
    assert made.key.expires_at.utcoffset() == timedelta(0)


async def test_rotation_at_once(world: Any) -> None:
    old = await _create(world, name="laptop", scopes=["inference"])
    async with world.store.admin(write=True) as admin:
        new = await admin.keys.rotate(old.key.id)
    assert (new.key.rotated_from, new.key.name, new.key.scopes) == (old.key.id, "laptop", (Scope.INFERENCE,))
    assert await world.store.authenticate(old.secret) is None
    assert await world.store.authenticate(new.secret) is not None


async def test_rotation_with_grace(world: Any) -> None:
    old = await _create(world)
    async with world.store.admin(write=True) as admin:
        new = await admin.keys.rotate(old.key.id, grace_seconds=3600)
        assert new.key.expires_at is None
        assert (await admin.keys.get(old.key.id)).expires_at is not None
    assert await world.store.authenticate(old.secret) is not None
    await _expire(world, old.key.id)
    assert await world.store.authenticate(old.secret) is None
    assert await world.store.authenticate(new.secret) is not None


async def test_a_grace_period_never_extends_a_keys_life(world: Any) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    old = await _create(world, expires_at=soon)
    async with world.store.admin(write=True) as admin:
        await admin.keys.rotate(old.key.id, grace_seconds=3600)
        assert (await admin.keys.get(old.key.id)).expires_at == soon


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"expires_at": datetime(2000, 1, 1, tzinfo=UTC)}, "expires_at"),
        ({"expires_at": datetime(2100, 1, 1)}, "expires_at"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
    ],
)
async def test_bad_values_are_named(world: Any, options: dict[str, Any], param: str) -> None:
    with pytest.raises(Invalid) as rejected:
        await _create(world, **options)
    assert rejected.value.param == param


@pytest.mark.parametrize("key_id", ["nothing", "\ud800", "\0", "x" * 1000])
async def test_an_unknown_key_is_not_found(world: Any, key_id: str) -> None:
    async with world.store.admin(write=True) as admin:
        for attempt in (admin.keys.get(key_id), admin.keys.revoke(key_id), admin.keys.rotate(key_id)):
            with pytest.raises(NotFound):
                await attempt


async def test_the_admin_key_is_created_and_shown_once(store: Any) -> None:
    key = await store.ensure_admin_key(None)
    assert len(key) >= 24
    assert await store.ensure_admin_key(None) is None
    assert (await store.authenticate(key)).principal == AdminPrincipal()
    assert await store.authenticate(key + "x") is None


async def test_a_given_admin_key_replaces_the_stored_one(store: Any) -> None:
    made = await store.ensure_admin_key(None)
    for given in ("any printable string, as long as it is long", "lg-abcdefgh-ijklmnopqrstuvwxyz"):
        assert await store.ensure_admin_key(given) is None
        assert (await store.authenticate(given)).principal == AdminPrincipal()
        assert await store.authenticate(made) is None


@pytest.mark.parametrize("key", ["x" * 23, "", "x" * 24 + "\n", " " * 30, "x" * 257])
async def test_a_bad_admin_key_is_rejected_without_repeating_it(store: Any, key: str) -> None:
    with pytest.raises(Invalid) as rejected:
        await store.set_admin_key(key)
    assert key == "" or key not in rejected.value.message
    assert await store.authenticate(key) is None


async def test_setting_the_clock_back_revives_no_key(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2100, 1, 1, 12, tzinfo=UTC)
    made = await _create(world, expires_at=noon)

    async def at(moment: datetime, seconds: float) -> Any:
        monkeypatch.setattr(authentication, "database_now", lambda: literal(moment, UtcDateTime()))
        monkeypatch.setattr(timestamps, "elapsed", lambda: seconds)
        return await world.store.authenticate(made.secret)

    assert (await at(noon - timedelta(hours=1), 0)).seconds_left == 3600
    assert await at(noon, 3600) is None
    assert await at(noon - timedelta(hours=1), 3601) is None


async def test_a_clock_that_jumped_forward_costs_no_key_its_life(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2100, 1, 1, 12, tzinfo=UTC)
    made = await _create(world, expires_at=noon)

    async def at(moment: datetime, seconds: float) -> Any:
        monkeypatch.setattr(authentication, "database_now", lambda: literal(moment, UtcDateTime()))
        monkeypatch.setattr(timestamps, "elapsed", lambda: seconds)
        return await world.store.authenticate(made.secret)

    assert await at(noon - timedelta(hours=1), 0) is not None
    assert await at(noon + timedelta(days=7), 10) is None, "the jump may be a correction"
    found = await at(noon - timedelta(hours=1) + timedelta(seconds=20), 20)
    assert found is not None, "the database's clock is right again"
    assert found.seconds_left == pytest.approx(3580, abs=1)


async def test_expiry_uses_the_databases_clock(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await _create(world, expires_at=datetime.now(UTC) + timedelta(hours=1))
    async with world.store._database.operator() as session:
        now = await session.scalar(select(database_now()))
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
    assert now.microsecond or (await _fraction(world)), "it is finer than a second"
    assert 0 < (await world.store.authenticate(made.secret)).seconds_left <= 3600


async def _fraction(world: Any) -> int:
    async with world.store._database.operator() as session:
        return int((await session.scalar(select(database_now()))).microsecond)


async def test_all_scopes_are_all_but_admin_and_export(world: Any) -> None:
    principal = (await world.store.authenticate((await _create(world)).secret)).principal
    assert {scope for scope in Scope if not principal.allows(scope)} == {Scope.ADMIN, Scope.EXPORT}


async def test_last_use_never_goes_back(world: Any) -> None:
    keys = [(await _create(world)).key.id for _ in range(3)]
    late, early = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    async with world.store.admin(write=True) as admin:
        await admin.keys.record_use({keys[0]: late, keys[1]: early, "unknown": late})
        await admin.keys.record_use({keys[0]: early, keys[1]: late})
        assert [(await admin.keys.get(key)).last_used_at for key in keys] == [late, late, None]


async def test_a_tenant_administrator_reaches_only_its_own_keys(world: Any) -> None:
    mine = await _create(world)
    async with world.store.admin(within=world.other.id, write=True) as admin:
        for attempt in (
            admin.keys.get(mine.key.id),
            admin.keys.revoke(mine.key.id),
            admin.keys.rotate(mine.key.id),
            admin.keys.create(world.acme.id),
            admin.keys.list(world.acme.id),
            admin.tenants.get(world.acme.id),
            admin.tenants.update(world.acme.id, name="mine"),
            admin.tenants.delete(world.acme.id),
        ):
            with pytest.raises(NotFound):
                await attempt
        own = await admin.keys.create(world.other.id)
        assert [key.id for key in await admin.keys.list(world.other.id)] == [own.key.id]
        with pytest.raises(Invalid):
            await admin.keys.list(world.other.id, after=mine.key.id)
        assert [tenant.id for tenant in await admin.tenants.list()] == [world.other.id]
    assert await world.store.authenticate(mine.secret) is not None
    assert await world.store.authenticate(own.secret) is not None


async def test_work_of_a_key_goes_on_with_those_that_it_was_rotated_to(world: Any) -> None:
    async def holder(key_id: str) -> str | None:
        found = await world.store.principal_of(key_id)
        return None if found is None else str(found.key_id)

    old = (await _create(world, scopes=["inference"])).key.id
    other = (await _create(world)).key.id
    async with world.store.admin(write=True) as admin:
        second = (await admin.keys.rotate(old, grace_seconds=60)).key.id
    assert await holder(old) == old, "as long as it is valid"
    async with world.store.admin(write=True) as admin:
        third = (await admin.keys.rotate(second)).key.id
        await admin.keys.revoke(old)
    assert await holder(old) == await holder(second) == third
    async with world.store.admin(write=True) as admin:
        await admin.keys.revoke(third)
    assert await holder(old) is None
    assert (await holder(other), await holder("unknown")) == (other, None)
