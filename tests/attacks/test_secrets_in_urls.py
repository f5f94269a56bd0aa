"""Keys in URLs: they grant nothing there, and are not logged."""

import logging

import pytest

from tests.attacks.raw_http import exchange
from tests.gateway.running_gateway import ADMIN_KEY, Gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_key_outside_the_header_grants_nothing_and_is_not_logged(
    attacked: Gateway, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    key, name = attacked.key, "Authorization: Bearer"
    lines = [
        f"GET /v1/models?api_key={key}&key={key}&access_token={key}&authorization=Bearer%20{key}",
        f"GET /v1/models/{key}",
        f"GET /admin/v1/tenants?admin_key={ADMIN_KEY}",
        f"GET http://{key}@x/v1/models",
        f"GET /metrics?key={ADMIN_KEY}",
    ]
    elsewhere = ("Cookie", "X-Api-Key", "User-Agent", "Referer", "X-Request-Id")
    odd_headers = "".join(f"{header}: {key}/\r\n" for header in elsewhere)
    for line in lines:
        answer = await exchange(attacked, f"{line} HTTP/1.1\r\nHost: {key}\r\n{odd_headers}\r\n".encode())
        assert answer.status in (400, 401) or line.startswith("GET /metrics"), (line, answer.status)
        assert key.encode() not in answer.body + str(answer.headers).encode()
    for wrong in (f"{name}{key}", f"{name} {key}x", f"Authorization: Basic {key}", f"Authorization: {key}"):
        request = f"GET /v1/models HTTP/1.1\r\nHost: x\r\n{wrong}\r\n\r\n"
        assert (await exchange(attacked, request.encode())).status == 401
    written = caplog.text + "".join(capfd.readouterr())
    assert "loragate.access" in {record.name for record in caplog.records}
    assert key not in written
    assert ADMIN_KEY not in written
    async with attacked.http() as http:
        assert key not in (await http.get("/metrics")).text
