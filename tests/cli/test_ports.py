import socket

import pytest

from loragate.cli.refusal import Refusal
from loragate.cli.supervisor.ports import listen, url_of


def test_a_port_in_use_is_refused_by_its_number_and_option() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Refusal, match=rf"port {port} .* in use.*--port or LORAGATE_PORT"):
            listen("127.0.0.1", port)


def test_a_port_is_taken_from_the_start() -> None:
    with listen("127.0.0.1", 0) as listener:
        socket.create_connection(listener.getsockname()).close()


def test_a_port_can_be_taken_again_at_once() -> None:
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    with socket.create_connection(address):
        accepted, _ = listener.accept()
        accepted.close()  # our side closes first, and would wait in TIME_WAIT
    listener.close()
    listen(*address).close()


def test_an_unknown_host_is_refused_by_option() -> None:
    with pytest.raises(Refusal, match="--host"):
        listen("no such host", 0)


@pytest.mark.parametrize(("host", "seen"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_url_is_one_that_a_client_here_can_use(host: str, seen: str) -> None:
    with listen(host, 0) as listener:
        assert url_of(listener) == f"http://{seen}:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_addresses_are_bracketed() -> None:
    try:
        listener = listen("::1", 0)
    except Refusal:
        pytest.skip("no IPv6 loopback here")
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
