"""A gateway with two engines."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import select
from tokenizers import Tokenizer

from loragate.adapter_store.fleet.engine_leases import EngineLease
from loragate.adapter_store.tables.usage import UsageRecordRow
from loragate.engine.fleet.addresses import EngineAddress
from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import engine_pb2 as pb
from tests.gateway.engine.test_reconciler import inventory, place, until
from tests.gateway.engine_stats import full_stats
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.metrics_page import samples_of, scrape_as_operator, value
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID, write_adapter

TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 3}
FIRST, SECOND = "engine-0", "second"


@dataclass
class Fleet:
    """A gateway and its engines by id."""

    gateway: Gateway
    engines: dict[str, StubEngine]

    async def ready(self, *ids: str) -> None:
        assert self.gateway.services is not None
        fleet = self.gateway.services.link.fleet
        await until(lambda: {member.id for member in fleet.ready_members} == set(ids))

    def busy(self) -> str:
        """Return the engine that has the only request."""
        (found,) = [id_ for id_, engine in self.engines.items() if engine.submits]
        return found


@pytest.fixture
async def other_engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer) as stub:
        yield stub


@pytest.fixture
async def fleet(
    config: GatewayConfig, engine: StubEngine, other_engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[Fleet]:
    both = replace(config, engines=(EngineAddress(SECOND, other_engine.target),))
    async with serving(both, engine, tenants) as gateway:
        running = Fleet(gateway, {FIRST: engine, SECOND: other_engine})
        await running.ready(FIRST, SECOND)
        yield running


async def test_requests_and_what_is_known_of_them_are_spread(fleet: Fleet) -> None:
    for number, engine in enumerate(fleet.engines.values()):
        engine.pause_after = 1
        engine.stats = full_stats()
        engine.stats.requests = 10 + number
    async with fleet.gateway.http() as http:
        running = [asyncio.create_task(http.post("/v1/completions", json=TEXT)) for _ in range(8)]
        await until(lambda: sum(len(engine.submits) for engine in fleet.engines.values()) == 8)
        sent = {id_: len(engine.submits) for id_, engine in fleet.engines.items()}
        assert min(sent.values()) >= 2, "prompts that begin alike gather on an engine, but only a few more"
        async with fleet.gateway.admin() as admin:
            listed = (await admin.get("/admin/v1/engines")).json()["data"]
            single = (await admin.get(f"/admin/v1/engines/{SECOND}")).json()
        assert [(each["id"], each["state"], each["requests"]) for each in listed] == [
            (FIRST, "ready", sent[FIRST]),
            (SECOND, "ready", sent[SECOND]),
        ]
        assert (single["target"], single["reason"]) == (fleet.engines[SECOND].target, None)
        for engine in fleet.engines.values():
            engine.resume.set()
        assert [each.status_code for each in await asyncio.gather(*running)] == [200] * 8
    samples = samples_of(await scrape_as_operator(fleet.gateway))
    assert value(samples, "loragate_engine_requests_total", engine=FIRST) == 10
    assert value(samples, "loragate_engine_requests_total", engine=SECOND) == 11
    assert value(samples, "vllm:num_requests_running") == 2 * fleet.engines[FIRST].stats.running


async def test_a_lost_engine_costs_only_its_own_streams(fleet: Fleet) -> None:
    for engine in fleet.engines.values():
        engine.pause_after = 1
    async with fleet.gateway.http() as http:
        async with http.stream("POST", "/v1/completions", json=TEXT | {"stream": True}) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            lost = fleet.busy()
            (kept,) = fleet.engines.keys() - {lost}
            others = [asyncio.create_task(http.post("/v1/completions", json=TEXT)) for _ in range(8)]
            await until(lambda: sum(len(engine.submits) for engine in fleet.engines.values()) == 9)
            on_kept = len(fleet.engines[kept].submits)
            assert on_kept >= 2
            await fleet.engines[lost].kill()
            async with asyncio.timeout(2):
                rest = [line async for line in lines]
        assert any("engine_unavailable" in line for line in rest)
        assert not any("[DONE]" in line for line in rest)
        fleet.engines[kept].resume.set()
        statuses = sorted(each.status_code for each in await asyncio.gather(*others))
        served = len(fleet.engines[kept].submits)  # those that had no token yet have moved there
        assert on_kept <= served <= 8
        assert statuses == [200] * served + [503] * (8 - served)
        await fleet.ready(kept)
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["degraded"]) == (200, {lost: "not connected"})
        assert (await http.post("/v1/completions", json=TEXT)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_without_a_token_moves_to_another_engine(fleet: Fleet, stream: bool) -> None:
    for engine in fleet.engines.values():
        engine.pause_after = 0
    async with fleet.gateway.http() as http:
        running = asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": stream}))
        await until(lambda: any(engine.submits for engine in fleet.engines.values()))
        lost = fleet.busy()
        (kept,) = fleet.engines.keys() - {lost}
        fleet.engines[kept].pause_after = None
        await fleet.engines[lost].kill()
        answer = await running
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.text
    assert len(fleet.engines[kept].submits) == 1


async def test_placements_and_deletions_reach_all_engines(fleet: Fleet, tmp_path: Path) -> None:
    files = {file.name: file.read_bytes() for file in write_adapter(tmp_path / "poet").iterdir()}
    async with fleet.gateway.http() as http:
        answer = await http.post("/v1/adapters", data={"name": "poet"}, files=files)
    assert answer.status_code == 201, answer.text
    adapter = answer.json()
    probes = [engine for engine in fleet.engines.values() if engine.submits]
    assert len(probes) == 1, "an upload is tried on one engine"
    assert (await place(fleet.gateway, adapter, "pinned")).status_code == 200
    pinned = [({adapter["digest"]}, {adapter["digest"]})]
    await until(lambda: all(engine.placements() == pinned for engine in fleet.engines.values()))
    tiers = {FIRST: pb.TIER_HOST, SECOND: pb.TIER_DEVICE}
    for id_, engine in fleet.engines.items():
        engine.held = [inventory(fleet.gateway, adapter["digest"], tiers[id_], pinned=id_ == SECOND)]
    await asyncio.sleep(1.1)  # what engines hold is known for a second
    async with fleet.gateway.admin() as admin, fleet.gateway.http() as http:
        (shown,) = (await admin.get("/admin/v1/adapters")).json()["data"]
        assert shown["residency"] == "device"
        assert shown["held"] == [
            {"engine_id": FIRST, "version": 1, "tier": "host", "pinned": False},
            {"engine_id": SECOND, "version": 1, "tier": "device", "pinned": True},
        ]
        await http.delete("/v1/adapters/poet")
    await until(lambda: not any(engine.held for engine in fleet.engines.values()))


async def test_an_engine_of_another_base_model_is_rejected(
    config: GatewayConfig, engine: StubEngine, other_engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(config, engine, tenants) as gateway:
        await gateway.until_ready()
        assert gateway.services is not None
        fleet = gateway.services.link.fleet
        other_engine.manifest.base_digest = "sha256:another"
        lease = EngineLease(
            id=SECOND, target=other_engine.target, base_digest=engine.manifest.base_digest, adapter_slots=1
        )
        await gateway.services.store.engine_leases.renew(lease, "holder")
        await until(lambda: any(member.rejection for member in fleet.members))
        async with gateway.admin() as admin:
            found = (await admin.get(f"/admin/v1/engines/{SECOND}")).json()
            assert found["state"] == "rejected"
            assert "sha256:another" in found["reason"]
        async with gateway.http() as http:
            for _ in range(3):
                assert (await http.post("/v1/completions", json=TEXT)).status_code == 200
        assert not other_engine.submits


async def test_the_ledger_names_the_engine(fleet: Fleet) -> None:
    async with fleet.gateway.http() as http:
        assert (await http.post("/v1/completions", json=TEXT)).status_code == 200
    assert fleet.gateway.services is not None
    busy = fleet.busy()

    async def engines() -> list[str | None]:
        async with fleet.gateway.services.store._database.operator() as session:  # type: ignore[union-attr]
            return list(await session.scalars(select(UsageRecordRow.engine_id)))

    async with asyncio.timeout(30):
        while await engines() != [busy]:
            await asyncio.sleep(0.05)
