"""Pages of other origins: what `cors_origins` allows them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

PAGE = "https://app.example"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


@asynccontextmanager
async def allowing(
    origins: tuple[str, ...], config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> AsyncIterator[Gateway]:
    async with serving(replace(config, cors_origins=origins), engine, tenants) as gateway:
        await gateway.until_ready()
        yield gateway


async def test_no_page_is_allowed_unless_its_origin_is_named(gateway: Gateway) -> None:
    async with gateway.http() as http:
        asked = await http.options("/v1/chat/completions", headers={"origin": PAGE, **ASKS})
        answer = await http.get("/v1/models", headers={"origin": PAGE})
    assert asked.status_code == 405
    assert not [name for name in (*asked.headers, *answer.headers) if name.startswith("access-control")]


async def test_named_origins_may_call_with_their_own_keys(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with allowing((PAGE, "app://local"), config, engine, tenants) as gateway, gateway.http() as http:
        asked = await http.options("/v1/chat/completions", headers={"origin": PAGE, **ASKS})
        other = await http.options("/v1/chat/completions", headers={"origin": f"{PAGE}.evil", **ASKS})
        answers = [await http.get(path, headers={"origin": PAGE}) for path in ("/v1/models", "/v1/nothing")]
        foreign = await http.get("/v1/models", headers={"origin": f"{PAGE}.evil"})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]
    assert other.status_code == 400
    for answer in answers:  # errors, too, so that the page can read them
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-ratelimit-remaining-tokens" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-origin" not in foreign.headers


async def test_all_origins_never_with_credentials(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with allowing(("*",), config, engine, tenants) as gateway, gateway.http() as http:
        answer = await http.get("/v1/models", headers={"origin": PAGE, "cookie": "a=b"})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "origins",
    [
        ("*", PAGE),
        (f"{PAGE}/",),
        ("app.example",),
        ("https://App.example",),
        (f"{PAGE}:443",),
        ("null",),
        ("https://*",),
    ],
)
def test_other_values_stop_the_start(config: GatewayConfig, origins: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="cors_origins"):
        replace(config, cors_origins=origins)
