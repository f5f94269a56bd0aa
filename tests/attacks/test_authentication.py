"""Bypasses of authentication that worked elsewhere. Each test names where."""

import ast
import asyncio
import hmac
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from sqlalchemy import func, select, update

import loragate.adapter_store
import loragate.gateway
from loragate.adapter_store.auth.credentials import KeyFormat, KeyHasher
from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.notices.notices import LocalNotices
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.gateway.app import create_app
from loragate.gateway.auth import authenticator as authenticator_module
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.errors import TooManyRequests
from loragate.v1 import adapters_pb2
from tests.gateway.auth_clock import Clock
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import ADMIN_KEY, Gateway

Tenants = tuple[str, str, str]


@pytest.fixture
async def store(config: GatewayConfig) -> AsyncIterator[Store]:
    opened = await Store.open(config.database_url, config.blob_url, config.secret_key, LocalNotices())
    yield opened
    await opened.close()


async def status(gateway: Gateway, authorization: str | bytes, url: str = "/v1/models", **options: Any) -> int:
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        headers = [(b"authorization", authorization if isinstance(authorization, bytes) else authorization.encode())]
        return (await http.get(url, headers=headers + options.get("headers", []))).status_code


async def test_keys_that_share_a_prefix_share_nothing(gateway: Gateway) -> None:
    """CVE-2026-35030: the cache was keyed by the first characters of a token."""
    assert await status(gateway, f"Bearer {gateway.key}") == 200  # now it is cached
    whole = gateway.key
    flipped = whole[:-1] + ("a" if whole[-1] != "a" else "b")
    for twin in (whole[:-1], whole + "x", flipped, whole[:20], whole.upper(), whole + " " + ADMIN_KEY):
        assert await status(gateway, f"Bearer {twin}") == 401, twin
    public_id, secret = whole.split("-")[1:]
    other_id, other_secret = gateway.other_key.split("-")[1:]
    for mixed in (f"lg-{public_id}-{other_secret}", f"lg-{other_id}-{secret}"):
        assert await status(gateway, f"Bearer {mixed}") == 401


INJECTIONS = [
    "' OR '1'='1",
    "' OR 1=1 --",
    "x' UNION SELECT id, id, name, key_hash FROM api_keys --",
    "'; UPDATE api_keys SET revoked_at = NULL; --",
    "lg-x' OR 'a'='a-secret",
    'lg-"; DROP TABLE api_keys; ---x',
    "lg-%-%",
    "lg-_-_",
    "$1",
    ":id",
    "\\",
    "lg-a\tb-c",
]


@pytest.mark.parametrize("text", INJECTIONS)
async def test_the_header_is_never_part_of_a_query(gateway: Gateway, store: Store, text: str) -> None:
    """CVE-2026-42208: SQL through the Authorization header."""

    async def counts() -> list[int | None]:
        async with store._database.operator() as session:
            return [await session.scalar(select(func.count()).select_from(row)) for row in (ApiKeyRow, TenantRow)]

    before = await counts()
    for authorization in (f"Bearer {text}", f"Bearer lg-{text}-{text}", f"Bearer {gateway.key}{text}", text):
        for url in ("/v1/models", "/admin/v1/tenants"):
            assert await status(gateway, authorization, url) == 401
    assert await counts() == before
    assert await status(gateway, f"Bearer {gateway.key}") == 200


@pytest.mark.parametrize(
    "raw", [b"Bearer \xff\xfe", b"Bearer \xd0\xba\xd0\xbb\xd1\x8e\xd1\x87", b"\xffearer x", b"Bearer\xa0x"]
)
async def test_invalid_utf8_is_not_a_key(gateway: Gateway, raw: bytes) -> None:
    assert await status(gateway, raw) == 401


async def test_only_the_first_of_several_headers_is_used(gateway: Gateway) -> None:
    """A proxy might check one header and the server use another: the first one counts."""
    mine, good = b"Bearer nothing", f"Bearer {gateway.key}".encode()
    assert await status(gateway, mine, headers=[(b"authorization", good)]) == 401
    for name in (b"x-api-key", b"api-key", b"x-forwarded-authorization", b"cookie"):
        assert await status(gateway, mine, headers=[(name, gateway.key.encode())]) == 401


ODD_HOSTS = ["x/healthz?", "x?", "x/../healthz", "/healthz", "x#", "healthz", "127.0.0.1:8000/openapi.json?x="]


@pytest.mark.parametrize("host", ODD_HOSTS)
async def test_the_host_header_does_not_affect_routing(gateway: Gateway, host: str) -> None:
    """CVE-2026-48710: `/` or `?` in Host became part of the path that a prefix check looked at."""
    address, _, port = gateway.base_url.removeprefix("http://").partition(":")
    for path in ("/admin/v1/tenants", "/v1/models", "/admin/v1/engines"):
        reader, writer = await asyncio.open_connection(address, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readline()
        writer.close()
        await writer.wait_closed()
        assert head.split()[1] in (b"400", b"401"), (host, path, head)


@pytest.mark.parametrize(
    "path",
    [
        "//admin/v1/tenants",
        "/healthz/../admin/v1/tenants",
        "/healthz/%2e%2e/admin/v1/tenants",
        "/admin/v1/tenants/",
        "/admin/v1/tenants;x",
        "/ADMIN/v1/tenants",
        "/admin/v1/tenants%00",
        "/admin%2fv1%2ftenants",
        "http://x/admin/v1/tenants",
    ],
)
async def test_no_spelling_of_a_path_bypasses_its_route(gateway: Gateway, path: str) -> None:
    address, _, port = gateway.base_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.split()[1] in (b"400", b"401", b"404"), answer[:200]
    assert b'"tenant"' not in answer


async def test_no_route_of_the_operator_accepts_a_tenants_key(gateway: Gateway, config: GatewayConfig) -> None:
    """CVE-2026-35029: a route that changed the configuration asked for a key, but not for a role."""
    paths = create_app(config).openapi()["paths"]
    operators = [(path, method) for path, methods in paths.items() for method in methods if path.startswith("/admin/")]
    assert len(operators) >= 12
    async with gateway.http() as http:
        for path, method in operators:
            url = path.replace("{tenant_id}", gateway.tenant_id).replace("{key_id}", gateway.key.split("-")[1])
            answer = await http.request(method.upper(), url.replace("{engine_id}", "engine-0"), json={})
            assert answer.status_code == 403, (method, path, answer.text)
        assert (await http.get("/v1/models")).status_code == 200, "and nothing was revoked"


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2025-59425: the time of `==` revealed how much of a key was right."""
    compared = []
    real = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return bool(real(one, other))

    monkeypatch.setattr(hmac, "compare_digest", compare)
    hasher = KeyHasher(SecretKeys(b"a secret key for the tests"))
    stored = hasher.hash("lg-a-b")
    assert hasher.matches("lg-a-b", stored)
    assert not hasher.matches("lg-a-c", stored)
    assert [len(one) for one, _ in compared] == [32, 32], "of hashes, which say nothing about the key"


_SECRETS = frozenset({"secret", "hashed", "stored", "fingerprint", "signature", "password", "secret_key"})


def test_no_code_compares_a_secret_with_equals() -> None:
    """Checks the syntax tree, so that it also covers code that is written later."""
    folders = [Path(package.__path__[0]) for package in (loragate.adapter_store, loragate.gateway)]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 100
    wrong = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops):
                named = {_last_name(side) for side in (node.left, *node.comparators)}
                if named & _SECRETS:
                    wrong.append(f"{path.name}:{node.lineno}")
    assert not wrong


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


async def test_a_slow_read_revives_no_revoked_key(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LiteLLM #9820, #25553, #34217: a late write-back put the old record into the cache again."""
    caching = Authenticator(store, 5, KeyUse(store, 3600))
    read, held, resume = store.authenticate, asyncio.Event(), asyncio.Event()

    async def slow(key: str) -> Any:
        found = await read(key)
        held.set()
        await resume.wait()
        return found

    monkeypatch.setattr(store, "authenticate", slow)
    early = [asyncio.create_task(caching.principal(tenants[1])) for _ in range(10)]
    await held.wait()
    monkeypatch.setattr(store, "authenticate", read)
    async with store.admin(write=True) as admin:
        await admin.keys.revoke(tenants[1].split("-")[1])
    resume.set()
    await asyncio.gather(*early)
    for _ in range(3):
        assert await caching.principal(tenants[1]) is None


async def test_a_key_revoked_without_a_notice_works_no_longer_than_the_bound(
    store: Store, tenants: Tenants, clock: Clock
) -> None:
    """However often it is used meanwhile: use does not renew a cache entry."""
    caching = Authenticator(store, 5, KeyUse(store, 3600))
    assert await caching.principal(tenants[1]) is not None
    async with store._database.operator(write=True) as session:
        revoked = update(ApiKeyRow).where(ApiKeyRow.id == tenants[1].split("-")[1])
        await session.execute(revoked.values(revoked_at=func.current_timestamp()))
    for _ in range(49):
        clock.now += 0.1
        assert await caching.principal(tenants[1]) is not None
    clock.now += 0.2
    assert await caching.principal(tenants[1]) is None


def test_the_bound_cannot_be_exceeded_by_settings(config: GatewayConfig) -> None:
    with pytest.raises(ValueError, match="snapshot_seconds"):
        replace(config, snapshot_seconds=6)


def invented(number: int) -> str:
    """A key of the form that keys had before they had checksums: only a look-up shows that it is none."""
    return f"lg-{number:016d}-{'x' * 32}"


class Flooded:
    """An authenticator, in front of a database that responds to no invented key."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(authenticator_module, "_LOOKUP_SECONDS", 60)
        self.failures: Counter[str] = Counter()
        self.caching = Authenticator(
            store=store, lifetime=5, use=KeyUse(store, 3600), on_failure=lambda reason: self.failures.update([reason])
        )
        self.looked_up: list[str] = []
        self.under_way = 0
        self.go_on = asyncio.Event()
        self._read = store.authenticate
        monkeypatch.setattr(store, "authenticate", self._authenticate)

    async def _authenticate(self, key: str) -> Any:
        self.looked_up.append(key)
        if key.endswith("x" * 32):
            self.under_way += 1
            await self.go_on.wait()
            self.under_way -= 1
        return await self._read(key)

    async def begin(self, number: int) -> list[asyncio.Task[Any]]:
        """Send invented keys, each from an address of its own."""
        flood = [asyncio.create_task(self.caching.principal(invented(n), f"192.0.2.{n}")) for n in range(number)]
        while self.under_way == 0:
            await asyncio.sleep(0)
        return flood

    async def end(self, flood: list[asyncio.Task[Any]]) -> None:
        self.go_on.set()
        assert set(await asyncio.gather(*flood)) == {None}


async def test_a_flood_of_invented_keys_delays_no_valid_key(
    tenants: Tenants, store: Store, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Not keys that were used before, even when a change of their tenant's data makes them unknown; nor new ones."""
    flooded = Flooded(store, monkeypatch)
    assert await flooded.caching.principal(tenants[1]) is not None
    flood = await flooded.begin(50)
    async with asyncio.timeout(30):
        clock.now += 6  # what is known has run out
        assert await flooded.caching.principal(tenants[1]) is not None
        await store.notices.announce(tenants[0])
        assert await flooded.caching.principal(tenants[1]) is not None
        assert await flooded.caching.principal(tenants[2]) is not None, "its first use"
        assert await flooded.caching.principal(ADMIN_KEY) is not None, "its first use"
    assert flooded.under_way <= 2
    await flooded.end(flood)


async def test_keys_of_an_older_form_compete_with_invented_ones_only_once(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    old = tenants[1][:-6]
    async with store._database.operator(write=True) as session:
        key = update(ApiKeyRow).where(ApiKeyRow.id == old.split("-")[1])
        await session.execute(key.values(key_hash=store._hasher.hash(old)))
    flooded = Flooded(store, monkeypatch)
    assert await flooded.caching.principal(old) is not None
    flood = await flooded.begin(50)
    await store.notices.announce(tenants[0])
    async with asyncio.timeout(30):
        assert await flooded.caching.principal(old) is not None
    await flooded.end(flood)


async def test_inventing_keys_of_todays_form_costs_no_lookup(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they take all but the checksum from a valid key."""
    flooded = Flooded(store, monkeypatch)
    forged = [KeyFormat(bytes(32)).new_key().whole for _ in range(100)] + [tenants[1][:-6] + "000000"]
    for key in (*forged, "lg-a-b", "", "lg-unknown-nothing"):
        assert await flooded.caching.principal(key) is None
    assert flooded.looked_up == []
    assert flooded.failures == {"malformed": len(forged) + 3}


async def test_a_revoked_key_has_its_priority_once(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A tenant that makes and revokes many keys cannot use them to delay others."""
    flooded = Flooded(store, monkeypatch)
    async with store.admin(write=True) as admin:
        await admin.keys.revoke(tenants[1].split("-")[1])
    for _ in range(50):
        assert await flooded.caching.principal(tenants[1], "192.0.2.1") is None
    assert len(flooded.looked_up) == 1 + 20


async def test_an_address_that_fails_too_often_is_not_looked_up_for(gateway: Gateway, clock: Clock) -> None:
    statuses = [await status(gateway, f"Bearer {invented(number)}") for number in range(25)]
    assert statuses == [401] * 20 + [429] * 5
    async with gateway.http(invented(99)) as http:
        answer = await http.get("/v1/models")
    assert (answer.json()["error"]["code"], answer.headers["retry-after"]) == ("too_many_invalid_keys", "1")
    async with connected(gateway.grpc_target, invented(99)) as client:
        call = client.adapters.List(adapters_pb2.ListAdaptersRequest(), metadata=client.metadata)
        assert (await rejection(call)).status == grpc.StatusCode.RESOURCE_EXHAUSTED, "on any port"
    assert await status(gateway, f"Bearer {gateway.key}") == 200, "keys with a checksum are not affected"
    assert await status(gateway, f"Bearer {ADMIN_KEY}", "/admin/v1/tenants") == 200
    clock.now += 3
    assert [await status(gateway, f"Bearer {invented(number)}") for number in range(100, 105)] == [401] * 3 + [429] * 2
    async with gateway.admin() as admin:
        page = (await admin.get("/metrics")).text
    found = dict(re.findall(r'loragate_gateway_failed_authentications_total\{reason="(\w+)"\} ([\d.]+)', page))
    assert found == {"malformed": "0.0", "token": "0.0", "unknown": "23.0", "throttled": "9.0"}


async def test_networks_are_throttled_each_for_itself(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    flooded = Flooded(store, monkeypatch)
    flooded.go_on.set()
    for number in range(20):
        assert await flooded.caching.principal(invented(number), f"2001:db8::{number + 1:x}") is None
    with pytest.raises(TooManyRequests):
        await flooded.caching.principal(invented(20), "2001:db8::ffff:1")  # one client has a /64
    for other in ("2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.2", ""):
        assert await flooded.caching.principal(invented(20), other) is None
