"""The gateway of tests/gateway for attacks: one for each test, or `attacked`, which many tests share."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from tests.attacks.rest import at_rest
from tests.gateway.conftest import *  # noqa: F403
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.running_gateway import Gateway, serving


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_gateway(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with stub_engine(tokenizer) as engine:
        config = await new_config(tmp_path_factory.mktemp("attacked"), engine)
        # Its loop does not run during tests with other loops, which must not count as silence of the engine.
        config = replace(config, stall_seconds=1.0, heartbeat_timeout=3600.0)
        async with serving(config, engine, await new_tenants(config), send_buffer=8192) as gateway:
            await gateway.until_ready()
            async with gateway.admin() as http:  # a request without limits would hold no lease
                limits = {"limits": {"max_concurrency": 1000}}
                assert (await http.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json=limits)).status_code == 200
            yield gateway


@pytest_asyncio.fixture(loop_scope="session")
async def attacked(shared_gateway: Gateway) -> AsyncIterator[Gateway]:
    """The shared gateway, which must be at rest again afterwards; for tests in the session's event loop."""
    shared_gateway.engine.reset()
    await shared_gateway.until_ready()
    yield shared_gateway
    shared_gateway.engine.resume.set()
    await at_rest(shared_gateway)
