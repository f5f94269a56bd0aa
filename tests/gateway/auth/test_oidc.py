"""Operators' tokens, with a local issuer."""

import base64
import hmac
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from loragate.adapter_store import timestamps
from loragate.adapter_store.auth.principal import AdminPrincipal
from loragate.gateway.auth import issuer_keys
from loragate.gateway.auth.issuer_keys import IssuerKeys, KeysUnavailable
from loragate.gateway.auth.oidc import OidcOperators
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.errors import Forbidden, Unavailable
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

Key = RSAKey | ECKey


def rsa(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}, private=True)


@cache
def issuers_key() -> RSAKey:
    """Return a key that the issuers of all tests have, because making one takes a fifth of a second."""
    return rsa("first")


@dataclass
class Issuer:
    """Publishes `keys`; `asked` counts the requests for them."""

    keys: list[Any]
    about: dict[str, Any] = field(default_factory=dict)
    asked: int = 0
    url: str = ""

    def token(self, key: Any = None, alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
        key, now = key or self.keys[0], int(time.time())
        default = {
            "iss": self.url,
            "aud": "loragate",
            "sub": "alice",
            "iat": now,
            "exp": now + 600,
            "groups": ["staff", "admins"],
        }
        chosen = {name: value for name, value in (default | claims).items() if value is not None}
        return jwt.encode({"alg": alg, "kid": key.kid} | (header or {}), chosen, key, algorithms=[alg])

    def config(self, **changes: Any) -> OidcConfig:
        return replace(OidcConfig(self.url, "loragate", "admins"), **changes)


@pytest.fixture
def issuer() -> Any:
    made = Issuer([issuers_key()])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/realm/.well-known/openid-configuration":
                answer: Any = {"issuer": made.url, "jwks_uri": f"{made.url}/keys"} | made.about
            else:
                made.asked += 1
                answer = {"keys": [key.as_dict(private=isinstance(key, OctKey)) for key in made.keys]}
            body = orjson.dumps(answer)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/realm"
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


async def test_listed_operators_are_admitted(issuer: Issuer) -> None:
    operators = OidcOperators(issuer.config())
    for _ in range(3):
        assert await operators.principal(issuer.token()) == AdminPrincipal("alice")
    assert await operators.principal(issuer.token(aud=["other", "loragate"], groups="admins")) is not None
    assert issuer.asked == 1
    nested = OidcOperators(issuer.config(admin_claim="realm_access.roles"))
    assert await nested.principal(issuer.token(realm_access={"roles": ["admins"]})) is not None


@pytest.mark.parametrize("groups", [None, [], "staff", ["admin"], {"admins": True}, "administrators-not-admins"])
async def test_others_are_rejected(issuer: Issuer, groups: Any) -> None:
    with pytest.raises(Forbidden):
        await OidcOperators(issuer.config()).principal(issuer.token(groups=groups))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example.org"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": "loragate-staging"},
        {"exp": None},
        {"exp": -60},
        {"exp": "tomorrow"},
        {"nbf": 600},
        {"iat": 600},
        {"iat": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 256},
        {"sub": "a\nb"},
        {"sub": 7},
    ],
)
async def test_claims_that_do_not_match(issuer: Issuer, claims: dict[str, Any]) -> None:
    times = {
        name: int(time.time()) + claims[name] for name in ("exp", "nbf", "iat") if isinstance(claims.get(name), int)
    }
    assert await OidcOperators(issuer.config()).principal(issuer.token(**claims | times)) is None


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    now = int(time.time())
    assert await OidcOperators(issuer.config()).principal(issuer.token(exp=now - 20, iat=now + 20)) is not None


async def test_setting_the_clock_back_revives_no_token(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    operators, now, since = OidcOperators(issuer.config()), time.time(), timestamps.elapsed()
    token = issuer.token(exp=int(now) + 60)
    assert await operators.principal(token) is not None
    monkeypatch.setattr(timestamps, "elapsed", lambda: since + 120)
    assert await operators.principal(token) is None, "even if the clock was never seen at a later time"
    monkeypatch.setattr(time, "time", lambda: now + 120)
    assert await operators.principal(token) is None
    monkeypatch.setattr(time, "time", lambda: now)
    assert await operators.principal(token) is None


async def test_a_clock_that_jumped_forward_locks_out_no_user(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    operators, now = OidcOperators(issuer.config()), time.time()
    token = issuer.token(exp=int(now) + 600)
    assert await operators.principal(token) is not None
    monkeypatch.setattr(time, "time", lambda: now + 7 * 86400)
    assert await operators.principal(token) is None, "the jump may be a correction"
    monkeypatch.setattr(time, "time", lambda: now + 1)
    assert await operators.principal(token) is not None


def signed_with_the_public_key(key: RSAKey, body: str) -> str:
    """Return a token signed as HS256, which our library refuses to create."""
    head = base64.urlsafe_b64encode(orjson.dumps({"alg": "HS256", "kid": key.kid})).rstrip(b"=")
    signed = head + b"." + body.encode()
    signature = hmac.digest(key.as_pem(private=False), signed, "sha256")
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


async def test_invalid_signatures_are_rejected(issuer: Issuer) -> None:
    operators = OidcOperators(issuer.config())
    good = issuer.token()
    head, body, signature = good.split(".")
    forged = (
        issuer.token(rsa("first")),
        signed_with_the_public_key(issuer.keys[0], body),
        issuer.token(OctKey.generate_key(256, {"kid": "first"}), alg="HS256"),
        f"eyJhbGciOiJub25lIn0.{body}.",
        f"eyJhbGciOiJub25lIn0.{body}.{signature}",
        f"{head}.{body[:-4]}AAAA.{signature}",
        f"{head}.{body}.{signature[:-8]}AAAAAAAA",
        "eyJ..",
        "eyJ.x.y",
        f"{head}.{head}.{head}",
    )
    for token in forged:
        assert await operators.principal(token) is None, token
    assert await operators.principal(good) is not None


async def test_a_key_within_the_token_is_ignored(issuer: Issuer) -> None:
    mine = rsa("mine")
    token = issuer.token(mine, header={"jwk": mine.as_dict(private=False), "jku": f"{issuer.url}/keys"})
    assert await OidcOperators(issuer.config()).principal(token) is None


async def test_symmetric_keys_are_never_accepted(issuer: Issuer) -> None:
    shared = OctKey.generate_key(256, {"kid": "shared"})
    issuer.keys.append(shared)
    assert await OidcOperators(issuer.config()).principal(issuer.token(shared, alg="HS256")) is None
    assert [key.kid for key in await IssuerKeys(issuer.url).get("shared")] == ["first"]


async def test_elliptic_curves(issuer: Issuer) -> None:
    issuer.keys.append(ECKey.generate_key("P-256", {"kid": "curve"}))
    operators = OidcOperators(issuer.config())
    assert await operators.principal(issuer.token(issuer.keys[1], alg="ES256")) is not None


async def test_keys_rotate(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(issuer_keys, "elapsed", lambda: now[0])
    operators = OidcOperators(issuer.config())
    old, old_token = issuer.keys[0], issuer.token()
    assert await operators.principal(old_token) is not None
    new = rsa("second")
    issuer.keys = [new]
    assert await operators.principal(issuer.token(new)) is None, "asked for a moment ago"
    now[0] += 11
    assert await operators.principal(issuer.token(new)) is not None
    assert await operators.principal(old_token) is None, "withdrawn"
    assert issuer.asked == 2
    for number in range(20):
        assert await operators.principal(issuer.token(old, header={"kid": f"unknown-{number}"})) is None
    assert issuer.asked == 2, "unknown keys do not cause endless requests"


async def test_an_issuer_that_is_unavailable(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(issuer_keys, "elapsed", lambda: now[0])
    operators, token = OidcOperators(issuer.config()), issuer.token()
    assert await operators.principal(token) is not None
    issuer.about = {"issuer": "https://elsewhere.example.org"}
    now[0] += 1000
    assert await operators.principal(token) is not None, "its keys are known"
    now[0] += 3000
    with pytest.raises(Unavailable):
        await operators.principal(token)
    with pytest.raises(KeysUnavailable):
        await IssuerKeys("http://127.0.0.1:1/none").get(None)


@pytest.mark.parametrize("jwks_uri", ["http://keys.example.org/", "file:///etc/passwd", "https://user@host/", "", None])
async def test_keys_are_fetched_over_a_secure_connection_only(issuer: Issuer, jwks_uri: Any) -> None:
    issuer.about = {"jwks_uri": jwks_uri}
    with pytest.raises(Unavailable):
        await OidcOperators(issuer.config()).principal(issuer.token())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"issuer": "http://login.example.org"}, "oidc.issuer"),
        ({"issuer": "login.example.org"}, "oidc.issuer"),
        ({"audience": ""}, "oidc.audience"),
        ({"admin_value": ""}, "oidc.admin_value"),
    ],
)
def test_settings_that_admit_any_token_are_rejected(changes: dict[str, str], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        replace(OidcConfig("https://login.example.org", "loragate", "admins"), **changes)


@pytest.fixture
async def gateway(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], issuer: Issuer
) -> AsyncIterator[Gateway]:
    async with serving(replace(config, oidc=issuer.config()), engine, tenants) as running:
        await running.until_ready()
        yield running


async def test_an_operator_by_token(gateway: Gateway, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = issuer.token()
    async with gateway.http(token) as http, gateway.admin() as admin:
        created = await http.post("/admin/v1/tenants", json={"name": "acme"})
        assert created.status_code == 201
        (event,) = (await admin.get("/admin/v1/audit?actor=oidc:alice")).json()["data"]
        assert event["target"] == f"tenant:{created.json()['id']}"
        assert (await http.get("/v1/models")).json()["error"]["code"] == "tenant_key_required"
        assert (await admin.get("/admin/v1/tenants")).status_code == 200
    answers = []
    for other in (
        issuer.token(groups=["staff"]),
        issuer.token(exp=1),
        issuer.token(rsa("first")),
        "eyJ.." + "x" * 8100,
    ):
        async with gateway.http(other) as http:
            answers.append((await http.get("/admin/v1/tenants")).status_code)
    assert answers == [403, 401, 401, 401]
    assert token not in caplog.text
    assert token.rsplit(".", 1)[1] not in caplog.text
