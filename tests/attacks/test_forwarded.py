"""Whose word is taken for a client's address: that of trusted proxies, never the client's own."""

import json
import logging
from dataclasses import replace

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.connections.peers import TrustedProxies
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from tests.attacks.test_authentication import invented
from tests.gateway.auth_clock import Clock
from tests.gateway.grpc_client import connected
from tests.gateway.running_gateway import serving
from tests.gateway.stub_engine import StubEngine

PROXIES = ("10.0.0.0/8", "2001:db8::/32")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", ["192.0.2.1"], "203.0.113.9"),  # a stranger claims to be a proxy
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),  # the client wrote the first
        ("10.0.0.1", ["203.0.113.9", "192.0.2.1"], "192.0.2.1"),  # in a header of its own
        ("10.0.0.1", ["192.0.2.1, 10.9.9.9"], "192.0.2.1"),  # two proxies
        ("10.0.0.1", ["10.9.9.9"], "10.9.9.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["<script>"], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:470::1]:4711"], "2001:470::1"),
        ("2001:db8::1", ["2001:470::1"], "2001:470::1"),
        ("::ffff:10.0.0.1", ["::ffff:192.0.2.1"], "192.0.2.1"),
        ("", ["192.0.2.1"], ""),  # a Unix socket
        ("10.0.0.1", ["192.0.2.1, " + ", ".join(["10.0.0.2"] * 10_000)], "10.0.0.2"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has(peer: str, forwarded: list[str], client: str) -> None:
    assert TrustedProxies(PROXIES).client_of(peer, forwarded) == client


@pytest.mark.parametrize(("trusted", "seen"), [((), "127.0.0.1"), (("127.0.0.0/8",), "203.0.113.7")])
async def test_the_same_over_both_protocols(
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    caplog: pytest.LogCaptureFixture,
    trusted: tuple[str, ...],
    seen: str,
) -> None:
    claimed = "192.0.2.1, 203.0.113.7"
    async with serving(replace(config, trusted_proxies=trusted), engine, tenants) as gateway:
        with caplog.at_level(logging.INFO, "loragate.access"):
            async with gateway.http() as http:
                await http.get("/v1/adapters", headers={"x-forwarded-for": claimed})
            async with connected(gateway.grpc_target, gateway.key) as client:
                metadata = (*client.metadata, ("x-forwarded-for", claimed))
                await client.adapters.List(ListAdaptersRequest(), metadata=metadata)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "loragate.access"]
    assert [line["client"] for line in lines] == [seen, seen]


async def test_failures_are_those_of_the_client_behind_the_proxy(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], clock: Clock
) -> None:
    """A client that guesses keys does not use up the tries of the proxy's other clients."""
    trusting = replace(config, trusted_proxies=("127.0.0.1",))
    async with serving(trusting, engine, tenants) as gateway, gateway.http() as http:

        async def guess(number: int, client: str) -> int:
            headers = {"authorization": f"Bearer {invented(number)}", "x-forwarded-for": client}
            return (await http.get("/v1/models", headers=headers)).status_code

        assert [await guess(number, "203.0.113.7") for number in range(21)] == [401] * 20 + [429]
        assert await guess(30, "203.0.113.8") == 401
