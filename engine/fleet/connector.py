"""How a process reaches the engines of its fleet: with one secret and one authority for all of them."""

from collections.abc import Sequence

from loragate.engine.client.client import EngineClient
from loragate.engine.client.grpc_client import HEARTBEAT_SECONDS, GrpcEngineClient
from loragate.engine.client.session import AdapterSource
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.fleet import Connect
from loragate.engine.link_security import LinkTls


def connector(
    source: AdapterSource,
    *,
    secret: str,
    previous_secrets: Sequence[str],
    tls: LinkTls | None,
    heartbeat_timeout: float = HEARTBEAT_SECONDS,
) -> Connect:
    """Return the function that makes the client of an engine. See GrpcEngineClient."""

    def connect(address: EngineAddress) -> EngineClient:
        return GrpcEngineClient(
            address.target,
            source,
            secret=secret,
            previous_secrets=previous_secrets,
            tls=tls,
            certificate_name=address.certificate_name,
            heartbeat_timeout=heartbeat_timeout,
        )

    return connect
