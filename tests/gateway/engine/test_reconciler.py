"""The operator's placements are sent to the engine whenever it or they change; and where adapters are."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from redis_server import RedisServer

from loragate.adapter_store.adapters.desired_state import Placement, PlacementBounds
from loragate.adapter_store.store import Store
from loragate.gateway.engine.reconciler import Reconciler
from loragate.v1 import engine_pb2 as pb
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

Upload = Callable[..., Awaitable[dict[str, Any]]]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def until_answer(ask: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """The engine's last report is valid for a second."""
    async with asyncio.timeout(30):
        while await ask() != wanted:
            await asyncio.sleep(0.05)


async def place(gateway: Gateway, adapter: dict[str, Any], placement: str | None) -> Any:
    async with gateway.admin() as admin:
        return await admin.patch(f"/admin/v1/adapters/{adapter['id']}", json={"placement": placement})


def placed(engine: StubEngine, pinned: set[str], on_disk: set[str], *, gateways: int = 1) -> Callable[[], bool]:
    return lambda: engine.placements() == [(pinned, on_disk)] * gateways


async def test_pins_follow_the_aliases(gateway: Gateway, engine: StubEngine, upload: Upload) -> None:
    first, other = await upload("poet", seed=1), await upload("clerk", seed=2)
    answer = await place(gateway, first, "pinned")
    assert answer.status_code == 200, answer.text
    assert (answer.status_code, answer.json()["placement"], answer.json()["held"]) == (200, "pinned", [])
    await place(gateway, other, "prefetched")
    await until(placed(engine, {first["digest"]}, {first["digest"], other["digest"]}))
    second = await upload("poet", seed=3)  # the default alias moves
    await until(placed(engine, {second["digest"]}, {second["digest"], other["digest"]}))
    async with gateway.http() as http:
        split = {"targets": [{"version": 1}, {"version": 2}]}
        await http.put("/v1/adapters/poet/aliases/default", json=split)
        both = {first["digest"], second["digest"]}
        await until(placed(engine, both, both | {other["digest"]}))
        await http.delete("/v1/adapters/poet")
        await until(placed(engine, set(), {other["digest"]}))
    await place(gateway, other, None)
    await until(placed(engine, set(), set()))


async def test_a_reconnected_engine_gets_the_placements_again(
    gateway: Gateway, engine: StubEngine, upload: Upload
) -> None:
    adapter = await upload("poet")
    await place(gateway, adapter, "pinned")
    await until(placed(engine, {adapter["digest"]}, {adapter["digest"]}))
    await engine.kill()
    await until(lambda: not engine.placements())
    await engine.start()
    await until(placed(engine, {adapter["digest"]}, {adapter["digest"]}))


async def test_the_engine_releases_deleted_adapters(gateway: Gateway, engine: StubEngine, upload: Upload) -> None:
    lives, dies = await upload("poet", seed=1), await upload("clerk", seed=2)
    await upload("twin", seed=1)  # of the same content, under another name
    engine.held = [inventory(gateway, each["digest"], pb.TIER_HOST) for each in (lives, dies)]
    engine.held.append(inventory(gateway, "sha256:" + "0" * 64, pb.TIER_DISK))  # deleted while no gateway was watching

    def holds() -> set[str]:
        return {each.adapter.digest for each in engine.held}

    async with gateway.http() as http:
        await http.delete("/v1/adapters/clerk")
        await until(lambda: holds() == {lives["digest"]})
        await http.delete("/v1/adapters/poet")
        await http.patch("/v1/adapters/twin", json={"tags": ["x"]})
        await asyncio.gather(*(place(gateway, lives, None) for _ in range(3)))
        assert holds() == {lives["digest"]}
        await http.delete("/v1/adapters/twin")
        await until(lambda: not holds())


def inventory(gateway: Gateway, digest: str, tier: pb.Tier, *, pinned: bool = False) -> pb.Held:
    return pb.Held(adapter=pb.AdapterRef(tenant_id=gateway.tenant_id, digest=digest), tier=tier, pinned=pinned)


async def test_each_caller_sees_where_its_adapters_are(gateway: Gateway, engine: StubEngine, upload: Upload) -> None:
    first, second, absent = await upload("poet", seed=1), await upload("poet", seed=2), await upload("clerk", seed=3)
    engine.held = [
        inventory(gateway, first["digest"], pb.TIER_DISK),
        inventory(gateway, second["digest"], pb.TIER_DEVICE, pinned=True),
    ]
    async with gateway.http() as http, gateway.admin() as admin, gateway.http(gateway.other_key) as other:

        async def adapters() -> dict[str, str | None]:
            return {each["name"]: each["residency"] for each in (await http.get("/v1/adapters")).json()["data"]}

        await until_answer(adapters, {"poet": "device", "clerk": "none"})
        asked = len(engine.inventories)
        versions = (await http.get("/v1/adapters/poet/versions")).json()["data"]
        assert [each["residency"] for each in versions] == ["device", "disk"]
        assert (await http.get("/v1/adapters/poet/versions/1")).json()["residency"] == "disk"
        reported = {each["name"]: each["held"] for each in (await admin.get("/admin/v1/adapters")).json()["data"]}
        on_device = {"engine_id": "engine-0", "version": 2, "tier": "device", "pinned": True}
        assert reported == {"poet": [on_device], "clerk": []}
        assert (await other.get("/v1/adapters")).json()["data"] == []
        assert len(engine.inventories) - asked <= 1, "they share what the engine said"
        await engine.kill()
        await until_answer(adapters, {"poet": None, "clerk": None})
        assert (await admin.get("/admin/v1/adapters")).json()["data"][0]["held"] == []
    assert absent["residency"] == "none"


async def test_placements_beyond_the_engines_capacity_are_rejected(
    gateway: Gateway, engine: StubEngine, upload: Upload
) -> None:
    slots = engine.manifest.adapter_slots
    adapters = [await upload(f"a{number}", seed=number) for number in range(slots + 1)]
    for adapter in adapters[: slots - 1]:
        assert (await place(gateway, adapter, "pinned")).status_code == 200
    rejected = await place(gateway, adapters[slots - 1], "pinned")
    assert (rejected.status_code, rejected.json()["error"]["code"]) == (409, "too_many_pins")
    assert (await place(gateway, adapters[0], "prefetched")).status_code == 200
    assert (await place(gateway, adapters[slots - 1], "pinned")).status_code == 200
    engine.stats = pb.StatsResponse(adapter_disk=pb.Room(total_bytes=10))

    async def rejection() -> str:
        answer = await place(gateway, adapters[slots], "prefetched")
        await place(gateway, adapters[slots], None)
        return str(answer.json().get("error", {}).get("code"))

    await until_answer(rejection, "insufficient_disk")
    async with gateway.admin() as admin:
        events = (await admin.get("/admin/v1/audit?action=adapter.place")).json()["data"]
    assert (events[-1]["before"], events[-1]["after"]) == ({"placement": None}, {"placement": "pinned"})


@pytest.mark.parametrize("body", [{"placement": "device"}, {}, {"placement": True}, {"keep": "pinned"}])
async def test_invalid_placements_are_rejected(gateway: Gateway, upload: Upload, body: Any) -> None:
    adapter = await upload("poet")
    async with gateway.admin() as admin:
        rejected = await admin.patch(f"/admin/v1/adapters/{adapter['id']}", json=body)
        assert rejected.status_code == 400
        missing = await admin.patch("/admin/v1/adapters/ad_nothing", json={"placement": None})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "adapter_not_found")


async def test_two_gateways_agree(
    config: Any, engine: StubEngine, tenants: tuple[str, str, str], upload_to: Upload, redis_server: RedisServer
) -> None:
    shared = replace(config, redis_url=redis_server.url)
    async with serving(shared, engine, tenants) as one, serving(shared, engine, tenants) as two:
        await one.until_ready()
        await two.until_ready()
        first, second = await upload_to(one, "poet", seed=1), await upload_to(two, "clerk", seed=2)
        await place(one, first, "pinned")
        await place(two, second, "prefetched")
        digests = {first["digest"], second["digest"]}
        await until(placed(engine, {first["digest"]}, digests, gateways=2))
        redis_server.stop()
        await engine.kill()
        await engine.start()
        await until(placed(engine, {first["digest"]}, digests, gateways=2))
        redis_server.start()
        async with two.http() as http:
            await http.delete("/v1/adapters/poet")
        await until(placed(engine, set(), {second["digest"]}, gateways=2))
    async with serving(shared, engine, tenants) as again:
        await again.until_ready()
        await until(placed(engine, set(), {second["digest"]}))


async def test_adapters_deleted_while_the_engine_was_away(gateway: Gateway, engine: StubEngine, upload: Upload) -> None:
    adapter = await upload("poet")
    await engine.kill()
    await until(lambda: gateway.services is not None and not gateway.services.link.ready)
    async with gateway.http() as http:
        assert (await http.delete("/v1/adapters/poet")).status_code == 200
    engine.held = [inventory(gateway, adapter["digest"], pb.TIER_DISK)]
    await engine.start()
    await until(lambda: not engine.held)


async def test_changes_without_a_notice_are_found_in_time(gateway: Gateway, engine: StubEngine, upload: Upload) -> None:
    adapter = await upload("poet")
    assert gateway.services is not None
    reconciler = Reconciler(gateway.services.store, gateway.services.link.fleet, period=0.05)
    comparing = asyncio.create_task(reconciler.run_reconcile_loop())
    elsewhere = await Store.open(gateway.config.database_url, gateway.config.blob_url, gateway.config.secret_key)
    try:
        async with elsewhere.admin(write=True) as admin:
            await admin.desired.place(adapter["id"], Placement.PINNED, PlacementBounds())
        await until(placed(engine, {adapter["digest"]}, {adapter["digest"]}))
    finally:
        comparing.cancel()
        await elsewhere.close()
