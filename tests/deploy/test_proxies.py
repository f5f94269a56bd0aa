"""The configurations for nginx and Envoy say the same. nginx's is also run, in tests/gateway/test_nginx.py."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from loragate.cli.settings.model import Settings
from loragate.gateway.grpc.methods import METHODS

FOLDER = Path(__file__).parents[2] / "deploy"
NGINX = (FOLDER / "nginx/loragate.conf").read_text()
ENVOY = (FOLDER / "envoy/loragate.yaml").read_text()
HOUR = 3600


@dataclass(frozen=True)
class Route:
    """Where requests for a host go, and how long they may take; `silence_seconds` is between two pieces of them."""

    host: str
    takes: str  # "grpc" or "http"
    upstream: str
    is_http2_to_upstream: bool
    silence_seconds: int
    total_seconds: int | None


@dataclass(frozen=True)
class Directive:
    """A directive of nginx with its words, and the ones in its braces."""

    words: list[str]
    block: list["Directive"]

    def every(self, name: str) -> list["Directive"]:
        return [each for each in self.block if each.words[0] == name]

    def values(self, name: str) -> list[str]:
        """Return what follows a name that the block has once."""
        [found] = self.every(name)
        return found.words[1:]

    def headers(self) -> dict[str, str]:
        """Return the headers that the block sets."""
        found = [*self.every("proxy_set_header"), *self.every("grpc_set_header")]
        return {each.words[1]: each.words[2].strip('"') for each in found}


def nginx() -> Directive:
    text = re.sub("#.*", "", NGINX)
    return Directive([], list(directives(iter(re.findall(r'"[^"]*"|[{};]|[^\s{};"]+', text)))))


def directives(tokens: Iterator[str]) -> Iterator[Directive]:
    """Yield the directives up to the end of their block."""
    words: list[str] = []
    for token in tokens:
        if token == "}":
            return
        if token in "{;":
            yield Directive(words, list(directives(tokens)) if token == "{" else [])
            words = []
        else:
            words.append(token)


def seconds(time: str) -> int:
    """Return a time of nginx or of Envoy."""
    return int(time[:-1]) * {"s": 1, "m": 60, "h": HOUR}[time[-1]]


def routes_of_nginx() -> set[Route]:
    upstreams = {each.words[1]: each.values("server")[0] for each in nginx().every("upstream")}
    found = set()
    for server in nginx().every("server"):
        [host] = server.values("server_name")
        for location in server.every("location"):
            kind = "grpc" if location.every("grpc_pass") else "proxy"
            scheme, _, upstream = location.values(f"{kind}_pass")[0].partition("://")
            silence = {seconds(location.values(f"{kind}_{way}_timeout")[0]) for way in ("read", "send")}
            takes = "grpc" if kind == "grpc" else "http"
            found.add(Route(host, takes, upstreams[upstream], scheme == "grpc", min(silence), None))
    return found


def manager() -> dict[str, Any]:
    """Return Envoy's HTTP connection manager."""
    [listener] = yaml.safe_load(ENVOY)["static_resources"]["listeners"]
    [chain] = listener["filter_chains"]
    [one] = chain["filters"]
    config: dict[str, Any] = one["typed_config"]
    return config


def upstreams_of_envoy() -> dict[str, tuple[str, bool]]:
    """Return each cluster's address, and whether it is reached by HTTP/2."""
    found = {}
    for cluster in yaml.safe_load(ENVOY)["static_resources"]["clusters"]:
        [group] = cluster["load_assignment"]["endpoints"]
        [endpoint] = group["lb_endpoints"]
        address = endpoint["endpoint"]["address"]["socket_address"]
        [options] = cluster.get("typed_extension_protocol_options", {"": {}}).values()
        is_http2 = "http2_protocol_options" in options.get("explicit_http_config", {})
        found[cluster["name"]] = (f"{address['address']}:{address['port_value']}", is_http2)
    return found


def routes_of_envoy() -> set[Route]:
    silence = seconds(manager()["stream_idle_timeout"])
    found = set()
    for host in manager()["route_config"]["virtual_hosts"]:
        name, with_any_port = host["domains"]
        assert with_any_port == f"{name}:*"
        for each in host["routes"]:
            upstream, is_http2 = upstreams_of_envoy()[each["route"]["cluster"]]
            takes = "grpc" if "grpc" in each["match"] else "http"
            total = seconds(each["route"]["timeout"]) or None  # 0: none; without one, Envoy has 15 seconds
            found.add(Route(name, takes, upstream, is_http2, silence, total))
    return found


def test_both_send_each_request_to_the_same_port_and_end_no_stream() -> None:
    settings = Settings()
    rest, grpc, panel = (f"127.0.0.1:{port}" for port in (settings.port, settings.grpc_port, settings.panel_port))
    expected = {
        Route("llm.example.org", "http", rest, False, HOUR, None),
        Route("llm.example.org", "grpc", grpc, True, HOUR, None),
        Route("panel.example.org", "http", panel, False, HOUR, None),
    }
    assert routes_of_nginx() == expected
    assert routes_of_envoy() == expected


def test_both_listen_on_the_same_port_with_the_same_certificate() -> None:
    listens = {tuple(server.values("listen")) for server in nginx().every("server")}
    certificate = nginx().values("ssl_certificate") + nginx().values("ssl_certificate_key")
    assert listens == {("443", "ssl", "http2")}
    [listener] = yaml.safe_load(ENVOY)["static_resources"]["listeners"]
    tls = listener["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
    [shown] = tls["tls_certificates"]
    assert listener["address"]["socket_address"]["port_value"] == 443
    assert tls["alpn_protocols"] == ["h2", "http/1.1"]
    assert certificate == [shown["certificate_chain"]["filename"], shown["private_key"]["filename"]]


def test_both_recognize_grpc() -> None:
    """nginx by the path, Envoy by the content type, in the first route that matches."""
    [server] = (each for each in nginx().every("server") if each.values("server_name") == ["llm.example.org"])
    [pattern] = (each.words[2] for each in server.every("location") if each.every("grpc_pass"))
    assert [method for method in METHODS if not re.match(pattern, method)] == []
    assert [path for path in ("/v1/models", "/openapi.json", "/loragate") if re.match(pattern, path)] == []
    [api] = (each for each in manager()["route_config"]["virtual_hosts"] if each["name"] == "api")
    assert ["grpc" in each["match"] for each in api["routes"]] == [True, False]


def test_both_pass_websockets_to_the_panel() -> None:
    [panel] = (each for each in nginx().every("server") if each.values("server_name") == ["panel.example.org"])
    [location] = panel.every("location")
    assert location.values("proxy_http_version") == ["1.1"]
    asked = {"Upgrade": "$http_upgrade", "Connection": "upgrade"}
    assert location.headers() | asked == location.headers()
    assert {"upgrade_type": "websocket"} in manager()["upgrade_configs"]


def test_both_say_who_calls_and_buffer_nothing() -> None:
    for server in nginx().every("server"):
        for location in server.every("location"):
            assert location.headers()["X-Forwarded-For"] == "$proxy_add_x_forwarded_for"
            if location.every("proxy_pass"):
                assert location.headers()["X-Forwarded-Proto"] == "$scheme"
                assert location.headers()["Host"] == "$host"
                assert [location.values(f"proxy_{each}buffering") for each in ("", "request_")] == [["off"], ["off"]]
    assert manager()["use_remote_address"] is True  # which sets both headers
    assert [each["name"] for each in manager()["http_filters"]] == ["envoy.filters.http.router"]  # none that buffers


@pytest.mark.parametrize("text", [NGINX, ENVOY], ids=["nginx", "envoy"])
def test_both_name_the_settings_that_they_need(text: str) -> None:
    assert "--forwarded-allow-ips 127.0.0.1" in text
    assert "LORAGATE_PANEL__PUBLIC_URL=https://panel.example.org" in text
