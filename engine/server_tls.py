"""TLS of a server's ports. Certificates are read again when their files change; open connections keep theirs."""

import logging
import re
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import grpc

log = logging.getLogger(__name__)

T = TypeVar("T")

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: `cert` has the certificate and its intermediates, `key` its key without a password.

    With `client_ca`, only clients that show a certificate are served: one that an authority in this file has signed, or
    the one in `own_client`, which this installation's own clients have.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    own_client: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(each for each in (self.cert, self.key, self.client_ca, self.own_client) if each is not None)


class Reloaded(Generic[T]):
    """What `build` makes of files, made again when one of them changes.

    `build` raises OSError or ValueError for files that cannot be used. The first time the caller handles that; later it
    is logged, and what was made before stays in use. The files are looked at when something asks, so no time passes
    between a change and the first connection that it concerns.
    """

    def __init__(self, paths: Sequence[Path], build: Callable[[], T]) -> None:
        self._paths = tuple(paths)
        self._build = build
        self._lock = threading.Lock()  # gRPC asks in threads of its own
        self._version = _version(self._paths)
        self._value = build()

    def current(self) -> T:
        """Return what the files make now, or made when they could last be used."""
        with self._lock:
            self._look()
            return self._value

    def changed(self) -> T | None:
        """Return the same, or None if nothing has changed since this was last called."""
        with self._lock:
            before = self._value
            self._look()
            return None if self._value is before else self._value

    def _look(self) -> None:
        version = _version(self._paths)
        if version == self._version:
            return
        self._version = version
        try:
            self._value = self._build()
        except (OSError, ValueError) as error:
            log.error("%s cannot be used, so the previous certificate stays: %s", self._names, error)
        else:
            log.info("%s changed: new connections use it", self._names)

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._paths))


def _version(paths: Sequence[Path]) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(map(_file_version, paths))


def _file_version(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server's context. Raise OSError or ValueError for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The password is for keys that have one: without it, OpenSSL would ask for it on the terminal.
    context.load_cert_chain(files.cert, files.key, password="")
    if files.client_ca is not None:
        context.load_verify_locations(cadata=_authorities(files))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def reloaded_context(files: TlsFiles) -> Callable[[], ssl.SSLContext]:
    """Return what gives each new connection the context of the files as they are by then."""
    return Reloaded(files.paths, lambda: server_context(files)).current


def grpc_credentials(files: TlsFiles) -> "grpc.ServerCredentials":
    """Return credentials that read the files again when they change. Raise as `server_context`."""
    import grpc  # takes long, and commands need the rest of this file only

    reloaded = Reloaded(files.paths, lambda: _grpc_certificates(files))
    return grpc.dynamic_ssl_server_credentials(
        reloaded.current(),
        reloaded.changed,  # type: ignore[arg-type]  # the stub does not know that None means "unchanged"
        require_client_authentication=files.client_ca is not None,
    )


def _grpc_certificates(files: TlsFiles) -> "grpc.ServerCertificateConfiguration":
    import grpc

    server_context(files)  # gRPC would notice a broken file only when clients connect
    roots = None if files.client_ca is None else _authorities(files).encode()
    return grpc.ssl_server_certificate_configuration([(files.key.read_bytes(), files.cert.read_bytes())], roots)


def _authorities(files: TlsFiles) -> str:
    paths = [each for each in (files.client_ca, files.own_client) if each is not None]
    return "\n".join(each for path in paths for each in certificates_in(path))


def certificates_in(path: Path) -> list[str]:
    """Return the certificates of a PEM file, which may have a key, too. Raise OSError, or ValueError without any."""
    found = _CERTIFICATE.findall(path.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{path} has no certificate in PEM form")
    return found
