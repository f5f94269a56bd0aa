"""Claims on idempotency keys, and the stored responses."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from sqlalchemy import func, select, update

from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.idempotency import IdempotencyClaim, StoredResponse
from loragate.adapter_store.tables.tenants import IdempotencyReplyRow


async def _claim(
    world: Any, key: str = "a", request: bytes = b"request", within: str | None = None
) -> IdempotencyClaim | StoredResponse:
    async with world.store.admin(write=True, within=within) as admin:
        claimed: IdempotencyClaim | StoredResponse = await admin.idempotency.claim(key, request)
    return claimed


async def _work(world: Any, claim: IdempotencyClaim, name: str) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.create(name)
        await admin.idempotency.complete(claim, StoredResponse(201, name.encode()))


async def _names(world: Any) -> set[str]:
    async with world.store.admin() as admin:
        return {tenant.name for tenant in await admin.tenants.list()} - {"acme", "other"}


async def _age(world: Any, **age: timedelta) -> None:
    async with world.store._database.operator(write=True) as session:
        await session.execute(
            update(IdempotencyReplyRow).values({name: datetime.now(UTC) - by for name, by in age.items()})
        )


async def test_of_concurrent_claims_one_succeeds(world: Any) -> None:
    for within in (None, world.acme.id):
        tried = await asyncio.gather(*(_claim(world, within=within) for _ in range(8)), return_exceptions=True)
        assert sum(isinstance(each, IdempotencyClaim) for each in tried) == 1
        rejected = [each for each in tried if not isinstance(each, IdempotencyClaim)]
        assert {getattr(each, "code", each) for each in rejected} == {"idempotency_key_in_use"}


async def test_the_response_is_stored_with_the_work(world: Any) -> None:
    claim = await _claim(world)
    assert isinstance(claim, IdempotencyClaim)
    await _work(world, claim, "done")
    assert await _claim(world) == StoredResponse(201, b"done")
    with pytest.raises(Conflict) as rejected:
        await _claim(world, request=b"another")
    assert rejected.value.code == "idempotency_key_reused"


async def test_rolled_back_work_has_no_response(world: Any) -> None:
    claim = await _claim(world)
    assert isinstance(claim, IdempotencyClaim)

    async def fail() -> None:
        async with world.store.admin(write=True) as admin:
            await admin.idempotency.complete(claim, StoredResponse(201, b"never"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with world.store.admin(write=True) as admin:
        await admin.idempotency.release(claim)
    assert isinstance(await _claim(world), IdempotencyClaim)


async def test_a_late_release_does_not_discard_a_response(world: Any) -> None:
    claim = await _claim(world)
    assert isinstance(claim, IdempotencyClaim)
    await _work(world, claim, "done")
    async with world.store.admin(write=True) as admin:
        await admin.idempotency.release(claim)
    assert await _claim(world) == StoredResponse(201, b"done")


async def test_the_claim_of_a_dead_process_expires(world: Any) -> None:
    dead = await _claim(world)
    assert isinstance(dead, IdempotencyClaim)
    with pytest.raises(Conflict):
        await _claim(world)
    await _age(world, claimed_until=timedelta(seconds=1))
    heir = await _claim(world)
    assert isinstance(heir, IdempotencyClaim)
    with pytest.raises(Conflict):
        await _work(world, dead, "dead")  # it was only slow; its work is rolled back
    await _work(world, heir, "heir")
    assert await _claim(world) == StoredResponse(201, b"heir")
    assert await _names(world) == {"heir"}


async def test_responses_are_kept_for_a_day(world: Any) -> None:
    claim = await _claim(world)
    assert isinstance(claim, IdempotencyClaim)
    await _work(world, claim, "done")
    await _age(world, created_at=timedelta(hours=23, minutes=59))
    assert await _claim(world) == StoredResponse(201, b"done")
    await _age(world, created_at=timedelta(hours=24, minutes=1))
    assert isinstance(await _claim(world), IdempotencyClaim)
    async with world.store._database.operator() as session:
        assert await session.scalar(select(func.count()).select_from(IdempotencyReplyRow)) == 1


async def test_the_same_key_of_another_caller_is_another_key(world: Any) -> None:
    owners = (None, world.acme.id, world.other.id)
    assert all([isinstance(await _claim(world, within=owner), IdempotencyClaim) for owner in owners])
    async with world.store.tenant(world.acme.id, write=True) as scope:
        with pytest.raises(Conflict):
            await scope.idempotency.claim("a", b"request")


async def test_a_response_is_decrypted_with_its_key_only(world: Any) -> None:
    claim = await _claim(world)
    assert isinstance(claim, IdempotencyClaim)
    await _work(world, claim, "done")
    async with world.store._database.operator() as session:
        sealed = await session.scalar(select(IdempotencyReplyRow.sealed))
    async with world.store.admin() as admin:
        assert admin.idempotency._opened(claim.secret, "a", sealed) == b"done"
        with pytest.raises(InvalidTag):
            admin.idempotency._opened(claim.secret, "b", sealed)
        with pytest.raises(InvalidTag):
            admin.idempotency._opened(b"another secret", "a", sealed)
    assert b"done" not in sealed
