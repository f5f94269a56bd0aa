"""How this installation's own clients reach its HTTP ports: the certificate that they accept, and the one they show."""

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx

from loragate.engine.server_tls import Reloaded, certificates_in


@dataclass(frozen=True, slots=True)
class ClientTls:
    """`server_cert` is the file with the only certificate that the server may show; without it, any valid one for the
    server's name is accepted. `client_cert` is shown to a server that asks: PEM, with its key."""

    server_cert: Path | None = None
    client_cert: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context, shared by all clients with these files. It costs milliseconds to make.

        A client that lives long calls this before each request, so that it accepts a certificate that has taken the
        file's place since. Raise OSError or ValueError for files that could never be used.
        """
        return _shared(self).current()


ANY_VALID = ClientTls()


class _Pinned:
    """A context that also accepts the certificates which the file had before: a server shows one of them until it has
    read the new one, and longer if that is broken."""

    def __init__(self, files: ClientTls) -> None:
        self._files = files
        self._context = _context(files)
        self._accepted = Reloaded(() if files.server_cert is None else (files.server_cert,), self._accept)

    def current(self) -> ssl.SSLContext:
        self._accepted.current()
        return self._context

    def _accept(self) -> None:
        if self._files.server_cert is not None:
            # Only the first one: who signed it may have signed others.
            self._context.load_verify_locations(cadata=certificates_in(self._files.server_cert)[0])


@cache
def _shared(files: ClientTls) -> _Pinned:
    return _Pinned(files)


def _context(files: ClientTls) -> ssl.SSLContext:
    if files.server_cert is None:
        context = httpx.create_ssl_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # On its own machine a server is reached by an address, which its certificate seldom names.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is trusted, not who issued it
    if files.client_cert is not None:
        context.load_cert_chain(files.client_cert, password="")
    return context
