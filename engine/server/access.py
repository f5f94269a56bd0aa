"""Who may call the engine, and on which addresses it listens."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio

from loragate.engine.config import EngineConfig
from loragate.engine.link_security import MAX_PREVIOUS_SECRETS, METADATA_KEY, PREVIOUS_METADATA_KEY, is_local, is_unix
from loragate.engine.server_tls import TlsFiles, grpc_credentials

_REJECTION = (
    "the engine's secret is missing or wrong: give gateways, fine-tune workers and the engine the same "
    "LORAGATE_SECRET_KEY or LORAGATE_ENGINE_SECRET"
)


def check_access(config: EngineConfig) -> None:
    """Raise ValueError for an engine that anybody could call, or whose link other machines could read or use."""
    if not config.secret:
        raise ValueError("the engine needs a secret: set LORAGATE_ENGINE_SECRET to the one that gateways have")
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ValueError("LORAGATE_TLS_CERT and LORAGATE_TLS_KEY belong together: set both or none")
    missing = config.tls_cert is None or config.tls_client_ca is None
    if missing and not is_local(config.listen):
        raise ValueError(
            f"engine.listen is {config.listen}, which other machines can reach: set LORAGATE_TLS_CERT, "
            "LORAGATE_TLS_KEY and LORAGATE_TLS_CLIENT_CA, the authority of the clients' certificates (`loragate certs` "
            "makes all of them), or listen on a Unix socket or a loopback address"
        )


class SecretRequired(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects every call, of any method, that does not bring the secret."""

    def __init__(self, secret: str, previous: Sequence[str] = ()) -> None:
        """Require `secret` or, so that not all clients have to be restarted with it at once, a previous one."""
        self._secrets = tuple(each.encode() for each in (secret, *previous))

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        if self._is_given(details.invocation_metadata or ()):
            return await continuation(details)
        return _REJECTING

    def _is_given(self, metadata: Any) -> bool:
        given = [value for key, value in metadata if key == METADATA_KEY]
        if len(given) != 1:
            return False
        given += [value for key, value in metadata if key == PREVIOUS_METADATA_KEY][:MAX_PREVIOUS_SECRETS]
        return any(hmac.compare_digest(each.encode(), secret) for each in given for secret in self._secrets)


async def _reject(requests: object, context: "grpc.aio.ServicerContext[Any, Any]") -> NoReturn:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REJECTION)


# Rejects methods of all kinds, because it reads nothing of the request.
_REJECTING = grpc.stream_stream_rpc_method_handler(_reject)


def listen(server: grpc.aio.Server, config: EngineConfig) -> None:
    """Open the port: with TLS if there is a certificate, except on a Unix socket. Raise OSError if it is in use."""
    if config.tls_cert is None or config.tls_key is None or is_unix(config.listen):
        port = server.add_insecure_port(config.listen)
    else:
        files = TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca)
        port = server.add_secure_port(config.listen, grpc_credentials(files))
    if port == 0 and not is_unix(config.listen):
        raise OSError(f"cannot listen on {config.listen}")
