"""Bypasses of authentication that worked elsewhere. Each test names where."""

import ast
import asyncio
import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update

import loragate.adapter_store
import loragate.gateway
from loragate.adapter_store.auth.credentials import KeyHasher
from loragate.adapter_store.notices.notices import LocalNotices
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.base import ApiKeyRow, TenantRow
from loragate.gateway.app import create_app
from loragate.gateway.auth import authenticator as authenticator_module
from loragate.gateway.auth.authenticator import Authenticator
from loragate.gateway.auth.key_use import KeyUse
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.auth_clock import Clock
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
    hasher = KeyHasher(b"a secret key for the tests")
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


async def test_a_flood_of_invented_keys_does_not_delay_known_keys(
    store: Store, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Each costs a read that finds nothing; cached keys are used meanwhile."""
    monkeypatch.setattr(authenticator_module, "_LOOKUP_SECONDS", 60)
    caching = Authenticator(store, 5, KeyUse(store, 3600))
    assert await caching.principal(tenants[1]) is not None
    read, under_way, resume = store.authenticate, 0, asyncio.Event()

    async def slow(key: str) -> Any:
        nonlocal under_way
        if key != tenants[1]:
            under_way += 1
            await resume.wait()
            under_way -= 1
        return await read(key)

    monkeypatch.setattr(store, "authenticate", slow)
    flood = [asyncio.create_task(caching.principal(f"lg-{number}-invented")) for number in range(50)]
    while under_way == 0:
        await asyncio.sleep(0)
    clock.now += 6  # the cache entries have expired
    assert await caching.principal(tenants[1]) is not None
    assert under_way <= 4
    resume.set()
    assert set(await asyncio.gather(*flood)) == {None}
