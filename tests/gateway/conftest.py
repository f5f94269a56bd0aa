from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from private_postgres import PostgresServer, private_postgres
from thinned import thinned
from tokenizers import Tokenizer

from loragate.adapter_store.database.schema import upgrade
from loragate.gateway.auth import authenticator, failures
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.generation import resolver as resolving
from loragate.gateway.resilience import database_check
from loragate.gateway.resilience import ttl_cache as snapshots
from tests.gateway import tiny_model
from tests.gateway.auth_clock import Clock
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import Client, connected
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tiny_model.byte_level_tokenizer()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    for module in (authenticator, failures, resolving, snapshots, database_check):
        monkeypatch.setattr(module, "elapsed", fake)
    return fake


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """What the engine's manifest has that `tiny_model.manifest` does not."""
    return {}


@pytest.fixture
async def engine(tokenizer: Tokenizer, manifest: dict[str, Any]) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, **manifest) as stub:
        yield stub


@pytest.fixture
async def config(tmp_path: Path, engine: StubEngine) -> GatewayConfig:
    return await new_config(tmp_path, engine)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with private_postgres() as server:
        yield server


@pytest.fixture(params=thinned(["sqlite", "postgres"], fast={"sqlite"}))
async def on_both(request: pytest.FixtureRequest, tmp_path: Path, engine: StubEngine) -> GatewayConfig:
    """A configuration with each of the databases."""
    config = await new_config(tmp_path, engine)
    if request.param == "sqlite":
        return config
    server: PostgresServer = request.getfixturevalue("postgres")
    await server.run("DROP DATABASE IF EXISTS gateway WITH (FORCE)")
    await server.run("CREATE DATABASE gateway")
    await upgrade(server.url("gateway"))
    return replace(config, database_url=server.url("gateway"))


@pytest.fixture
async def tenants(config: GatewayConfig) -> tuple[str, str, str]:
    """The first tenant's id, its key, and another tenant's key."""
    return await new_tenants(config)


@pytest.fixture
async def own_gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    async with serving(config, engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
def gateway(own_gateway: Gateway) -> Gateway:
    return own_gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _gateway_of_module(
    tokenizer: Tokenizer, manifest: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    async with stub_engine(tokenizer, **manifest) as engine:
        config = await new_config(tmp_path_factory.mktemp("shared"), engine)
        # Its loop does not run during other tests, which must not count as silence of the engine.
        config = replace(config, heartbeat_timeout=3600.0)
        async with serving(config, engine, await new_tenants(config)) as running:
            await running.until_ready()
            async with running.admin() as http:  # all tests together use more than one alone
                limits = {"limits": {"requests_per_minute": 100_000, "tokens_per_minute": 100_000_000}}
                assert (await http.patch(f"/admin/v1/tenants/{running.tenant_id}", json=limits)).status_code == 200
            yield running


@pytest.fixture
def shared_gateway(_gateway_of_module: Gateway) -> Gateway:
    """A gateway that the tests of a file share, because starting one takes longer than most of them. They run in one
    event loop, the module's, and leave the gateway as they found it, apart from new names; its engine is reset."""
    _gateway_of_module.engine.reset()
    return _gateway_of_module


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[Client]:
    """The first tenant's gRPC client."""
    async with connected(gateway.grpc_target, gateway.key) as client:
        yield client


@pytest.fixture
async def small_gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    """A gateway with bounds that a test reaches quickly."""
    small = replace(config, max_json_bytes=4096, max_upload_bytes=64 << 10, stall_seconds=0.3)
    async with serving(small, engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
def upload_to(tmp_path: Path) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Uploads a new adapter of the first tenant to this gateway."""

    async def upload(
        gateway: Gateway, name: str, *, seed: int = 0, alias: str | None = None, **written: Any
    ) -> dict[str, Any]:
        folder = tiny_model.write_adapter(tmp_path / name, seed=seed, **written)
        data = {"name": name} | ({} if alias is None else {"alias": alias})
        files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
        async with gateway.http() as http:
            response = await http.post("/v1/adapters", data=data, files=files)
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        gateway.engine.discard_probe(created["digest"])
        return created

    return upload


@pytest.fixture
def upload(
    gateway: Gateway, upload_to: Callable[..., Awaitable[dict[str, Any]]]
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Uploads a new adapter to the gateway of most tests."""
    return partial(upload_to, gateway)
