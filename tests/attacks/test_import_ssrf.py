"""Server-side request forgery by imports: each redirect, name and address is rejected without a request."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin

import pytest
import pytest_asyncio
from certificates import contexts
from tokenizers import Tokenizer

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.http.bodies import Pace
from loragate.gateway.imports.allow_list import AllowList
from loragate.gateway.imports.fetcher import Fetcher
from loragate.gateway.imports.public_addresses import is_public
from loragate.gateway.imports.source import ImportFailed
from tests.gateway import tiny_model
from tests.gateway.fake_hub import FakeHub, Reply, fake_hub
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.imports.test_hub import CONFIG, TENSORS, begin, ended
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

PACE = Pace(5.0)
PUBLIC_HOSTS = ("huggingface.co", "*.hf.co")


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[FakeHub, FakeHub]]:
    """The hub, and a server that must not receive a request."""
    async with fake_hub() as hub, fake_hub() as inside:
        yield hub, inside


@asynccontextmanager
async def importing(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], *hosts: str, hub: FakeHub
) -> AsyncIterator[Gateway]:
    imports = ImportConfig(hub=hub.url, hosts=(*PUBLIC_HOSTS, *hosts))
    async with serving(replace(config, stall_seconds=2.0, imports=imports), engine, tenants) as gateway:
        await gateway.until_ready()
        yield gateway


REDIRECTS = {
    "loopback": "http://127.0.0.1:{port}/",
    "loopback by name": "http://localhost:{port}/",
    "another port of the hub's": "//127.0.0.1:{port}/",
    "a short address": "http://127.1:{port}/",
    "a decimal address": "http://2130706433:{port}/",
    "an octal address": "http://0177.0.0.1:{port}/",
    "a hexadecimal address": "http://0x7f000001:{port}/",
    "any address": "http://0.0.0.0:{port}/",
    "IPv6's loopback": "http://[::1]:{port}/",
    "an IPv4-mapped address": "http://[::ffff:127.0.0.1]:{port}/",
    "an IPv4-mapped address in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "an address with a zone": "http://[fe80::1%25lo]:{port}/",
    "metadata of a cloud": "http://169.254.169.254/latest/meta-data/",
    "metadata over https": "https://169.254.169.254/",
    "metadata by name": "http://metadata.google.internal/computeMetadata/v1/",
    "a private network": "https://10.0.0.1/",
    "userinfo": "https://huggingface.co@127.0.0.1:{port}/",
    "userinfo with a port": "https://huggingface.co:443@127.0.0.1:{port}/",
    "userinfo and a backslash": "https://huggingface.co\\@127.0.0.1:{port}/",
    "a backslash": "http:\\\\127.0.0.1:{port}\\",
    "backslashes for slashes": "\\\\127.0.0.1:{port}/",
    "a fragment": "http://127.0.0.1:{port}#@huggingface.co/",
    "a query for a host": "http://127.0.0.1:{port}?@huggingface.co/",
    "a name that only begins so": "https://huggingface.co.evil.example/",
    "a name that only ends so": "https://evilhuggingface.co/",
    "a suffix without its dot": "https://evilhf.co/",
    "an empty suffix": "https://.hf.co/",
    "a dot at the end": "https://huggingface.co./",
    "an allowed name, unencrypted": "http://huggingface.co/",
    "an allowed name, another port": "https://huggingface.co:8443/",
    "an escape in the host": "https://huggingface%2eco/",
    "a wide letter": "https://huggingface。co/",
    "a blank": "https://huggingface.co /",
    "a tab": "https://huggingface.co\t.evil.example/",
    "a file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:{port}/_GET%20/",
    "ftp": "ftp://127.0.0.1/",
    "data": "data:application/json,{{}}",
    "no scheme": "127.0.0.1:{port}/",
    "a port that is none": "https://huggingface.co:99999/",
    "a URL without end": "https://huggingface.co/" + "a" * 9000,
}


OF_THE_HUB = ("no scheme",)
"""These are paths of the hub's own, where there is nothing."""


@dataclass(frozen=True)
class RedirectSetup:
    """A gateway for many redirects, its hub, and a server that must not receive a request."""

    gateway: Gateway
    hub: FakeHub
    inside: FakeHub


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def redirect_setup(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RedirectSetup]:
    folder = tmp_path_factory.mktemp("ssrf")
    async with two_servers() as (hub, inside), stub_engine(tokenizer) as engine:
        config = replace(await new_config(folder, engine), heartbeat_timeout=3600.0)
        async with importing(config, engine, await new_tenants(config), hub=hub) as gateway:
            yield RedirectSetup(gateway, hub, inside)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("path", [CONFIG, TENSORS], ids=["config", "tensors"])
@pytest.mark.parametrize("name", REDIRECTS)
async def test_redirects(
    redirect_setup: RedirectSetup, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, path: str
) -> None:
    hub, inside = redirect_setup.hub, redirect_setup.inside
    hub.offer("acme/poet", tiny_model.write_adapter(tmp_path / "poet"))
    location = REDIRECTS[name].format(port=inside.port)
    hub.replies[path] = Reply(status=302, headers={"location": location.encode().decode("latin-1")})
    async with redirect_setup.gateway.http() as http:
        done = await ended(http, (await begin(http, token="hf_secret"))["id"])
        assert (await http.get("/v1/adapters")).json()["data"] == []
    assert done["status"] == "failed"
    # Some of them are so wrong that the HTTP client itself fails on the response.
    rejected = {"source_not_found"} if name in OF_THE_HUB else {"host_not_allowed", "source_unavailable"}
    assert done["error"]["code"] in rejected, done
    assert inside.asked == []
    assert "hf_secret" not in caplog.text


@pytest.mark.parametrize("name", [name for name in REDIRECTS if name not in OF_THE_HUB])
def test_the_host_list_alone_rejects_them(name: str) -> None:
    """Regardless of what the names resolve to: most names above resolve to nothing, or to a rejected address."""
    with pytest.raises(ImportFailed) as failed:
        AllowList(PUBLIC_HOSTS).check(urljoin("https://huggingface.co/x", REDIRECTS[name].format(port=8000)))
    assert failed.value.failure.code == "host_not_allowed"


@pytest.mark.parametrize(
    "url", ["https://huggingface.co/x", "https://HuggingFace.co:443/x", "https://cdn.eu.hf.co/x?y"]
)
def test_listed_hosts_may_be_contacted(url: str) -> None:
    source = AllowList(PUBLIC_HOSTS).check(url)
    assert (source.scheme, source.port, source.any_address) == ("https", 443, False)


async def test_endless_redirects(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> None:
    async with fake_hub() as hub, importing(config, engine, tenants, hub=hub) as gateway, gateway.http() as http:
        hub.replies[CONFIG] = Reply(status=302, headers={"location": CONFIG})
        done = await ended(http, (await begin(http))["id"])
        assert done["error"]["code"] == "too_many_redirects"
        assert len(hub.asked) == 6


async def test_an_allowed_cdn_gets_no_token(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], tmp_path: Path
) -> None:
    """Neither it nor the hub receives the tenant's key."""
    folder = tiny_model.write_adapter(tmp_path / "poet")
    async with two_servers() as (hub, cdn), importing(config, engine, tenants, cdn.url, hub=hub) as gateway:
        hub.offer("acme/poet", folder)
        hub.replies[TENSORS] = Reply(status=302, headers={"location": f"{cdn.url}/blob?signature=secret"})
        cdn.replies["/blob?signature=secret"] = Reply((folder / "adapter_model.safetensors").read_bytes())
        async with gateway.http() as http:
            done = await ended(http, (await begin(http, token="hf_secret"))["id"])
            assert done["status"] == "ready", done
        assert ["authorization" in asked.headers for asked in cdn.asked] == [False]
        assert all(asked.headers["authorization"] == "Bearer hf_secret" for asked in hub.asked)
        assert all(gateway.key not in str(asked.headers) for asked in (*hub.asked, *cdn.asked))


ADDRESSES = {
    "93.184.215.14": True,
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c": True,
    "127.0.0.1": False,
    "127.255.255.254": False,
    "0.0.0.0": False,
    "10.1.2.3": False,
    "172.16.0.1": False,
    "192.168.1.1": False,
    "100.64.0.1": False,
    "169.254.169.254": False,
    "192.0.2.1": False,
    "198.18.0.1": False,
    "224.0.0.1": False,
    "240.0.0.1": False,
    "255.255.255.255": False,
    "::": False,
    "::1": False,
    "fe80::1": False,
    "fe80::1%eth0": False,
    "fc00::1": False,
    "fd00:ec2::254": False,
    "ff02::1": False,
    "::ffff:127.0.0.1": False,
    "::ffff:169.254.169.254": False,
    "::ffff:93.184.215.14": True,
    "::7f00:1": False,
    "64:ff9b::7f00:1": False,
    "64:ff9b::a9fe:a9fe": False,
    "64:ff9b:1::a9fe:a9fe": False,
    "2002:7f00:1::": False,
    "2002:a9fe:a9fe::1": False,
    "2001:db8::1": False,
    "192.0.0.9": False,
    "192.88.99.1": False,
    "::ffff:192.0.0.9": False,
    "2002:c058:6301::": False,
    "3fff::1": False,
    "fec0::1": False,
    "feff::1": False,
    "huggingface.co": False,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses(address: str) -> None:
    assert is_public(address) is ADDRESSES[address]


class ChangingResolver:
    """A resolver that returns a different address each time."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append((host, port))
        return self._answers.pop(0)


@pytest.mark.parametrize("answer", [("127.0.0.1",), ("93.184.215.14", "10.0.0.1"), ("::ffff:169.254.169.254",), ()])
async def test_an_allowed_name_that_resolves_to_an_internal_address(answer: tuple[str, ...]) -> None:
    resolve = ChangingResolver(answer)
    allow_list = AllowList(PUBLIC_HOSTS)
    async with Fetcher(allow_list, "https://huggingface.co", token="hf_secret", pace=PACE, resolve=resolve) as fetcher:
        with pytest.raises(ImportFailed) as failed:
            async with fetcher.opened("https://huggingface.co/x"):
                pass
    assert failed.value.failure.code == ("host_not_allowed" if answer else "source_unavailable")
    assert resolve.asked == [("huggingface.co", 443)]


async def test_rebinding(tmp_path: Path) -> None:
    """A name is resolved once, and the connection uses that address: a second resolution could differ.

    TLS still verifies the server's name, which only this resolver knows.
    """
    server, client = contexts(tmp_path, "hub.example")
    async with fake_hub(server) as hub, fake_hub(server) as inside:
        origin = f"https://hub.example:{hub.port}"
        hub.replies["/x"] = Reply(b"what was asked for")
        resolve = ChangingResolver(("127.0.0.1",), ("127.0.0.2",))
        fetcher = Fetcher(AllowList((origin,)), origin, token=None, pace=PACE, resolve=resolve, verify=client)
        async with fetcher, fetcher.opened(f"{origin}/x") as download:
            body = b"".join([piece async for piece in fetcher.read(download, 100)])
        assert body == b"what was asked for"
        assert [asked.headers["host"] for asked in hub.asked] == [f"hub.example:{hub.port}"]
        assert len(resolve.asked) == 1
        assert inside.asked == []


@pytest.mark.parametrize("trusting", [True, False])
async def test_a_server_with_another_name_is_not_contacted(tmp_path: Path, trusting: bool) -> None:
    server, client = contexts(tmp_path, "other.example" if trusting else "hub.example")
    verify: ssl.SSLContext | bool = client if trusting else True
    async with fake_hub(server) as hub:
        origin = f"https://hub.example:{hub.port}"
        resolve = ChangingResolver(("127.0.0.1",))
        fetcher = Fetcher(AllowList((origin,)), origin, token="hf_secret", pace=PACE, resolve=resolve, verify=verify)
        async with fetcher:
            with pytest.raises(ImportFailed) as failed:
                async with fetcher.opened(f"{origin}/x"):
                    pass
        assert failed.value.failure.code == "source_unavailable"
        assert hub.asked == []


async def test_the_environment_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, which would resolve names itself, and no password of .netrc."""
    async with two_servers() as (hub, proxy):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        netrc = tmp_path / ".netrc"
        netrc.write_text("machine 127.0.0.1 login operator password secret\n")
        monkeypatch.setenv("NETRC", str(netrc))
        hub.replies["/x"] = Reply(b"x")
        fetcher = Fetcher(AllowList((hub.url,)), hub.url, token=None, pace=PACE)
        async with fetcher, fetcher.opened(f"{hub.url}/x") as download:
            assert download.response.status_code == 200
        assert proxy.asked == []
        assert "authorization" not in hub.asked[0].headers
