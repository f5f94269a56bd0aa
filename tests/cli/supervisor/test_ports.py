import socket

import grpc
import grpc.aio
import pytest

from loragate.cli.errors import CliError
from loragate.cli.standalone.ports import address_of, listen, reserve, target_of, url_of


def test_a_port_in_use_is_rejected_by_its_number_and_option() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CliError, match=rf"port {port} .* in use.*--port or LORAGATE_PORT"):
            listen("127.0.0.1", port)


def test_a_port_is_bound_from_the_start() -> None:
    with listen("127.0.0.1", 0) as listener:
        socket.create_connection(listener.getsockname()).close()


def test_a_port_can_be_bound_again_at_once() -> None:
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    with socket.create_connection(address):
        accepted, _ = listener.accept()
        accepted.close()  # our side closes first, and would wait in TIME_WAIT
    listener.close()
    listen(*address).close()


def test_an_unknown_host_is_rejected_by_option() -> None:
    with pytest.raises(CliError, match="--host"):
        listen("no such host", 0)


@pytest.mark.parametrize(("host", "seen"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_url_works_for_a_local_client(host: str, seen: str) -> None:
    with listen(host, 0) as listener:
        assert url_of(listener) == f"http://{seen}:{listener.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_addresses_are_bracketed() -> None:
    try:
        listener = listen("::1", 0)
    except CliError:
        pytest.skip("no IPv6 loopback here")
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


async def test_grpc_servers_share_a_held_port_exclusively() -> None:
    with reserve("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        servers = [grpc.aio.server(options=[("grpc.so_reuseport", 1)]) for _ in range(2)]
        assert [server.add_insecure_port(address_of(held)) for server in servers] == [port, port]
        with pytest.raises(CliError, match=rf"port {port} .*--grpc-port or LORAGATE_GRPC_PORT"):
            reserve("127.0.0.1", port)
        for server in servers:
            await server.start()
        with pytest.raises(CliError, match=str(port)):
            reserve("127.0.0.1", port)
        for server in servers:
            await server.stop(None)
        with pytest.raises(CliError, match=str(port)):
            reserve("127.0.0.1", port)
    reserve("127.0.0.1", port).close()


@pytest.mark.parametrize("other", [listen, reserve])
def test_a_port_in_use_cannot_be_held(other) -> None:  # type: ignore[no-untyped-def]
    with other("127.0.0.1", 0) as used, pytest.raises(CliError, match="--grpc-port"):
        reserve("127.0.0.1", used.getsockname()[1])


def test_the_target_works_for_a_local_client() -> None:
    with reserve("0.0.0.0", 0) as held:
        port = held.getsockname()[1]
        assert (address_of(held), target_of(held)) == (f"0.0.0.0:{port}", f"127.0.0.1:{port}")
