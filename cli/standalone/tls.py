"""The certificate of the ports, checked at the start, and warnings about ports without one or with one that ends."""

import datetime
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import Settings
from loragate.engine.link_security import is_local
from loragate.engine.server_tls import certificates_in, server_context

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

log = logging.getLogger(__name__)

RENEWAL_DAYS = 14  # before its end, a certificate is warned about


def check_tls(settings: Settings) -> None:
    """Raise CliError for a certificate that cannot be used, or without its key."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise CliError("LORAGATE_TLS_CERT and LORAGATE_TLS_KEY belong together: set both or none", BAD_SETTING)
    if settings.tls is None:
        if settings.tls_client_ca is not None:
            raise CliError(
                "LORAGATE_TLS_CLIENT_CA requires certificates of clients, which needs TLS: set LORAGATE_TLS_CERT and "
                "LORAGATE_TLS_KEY, too",
                BAD_SETTING,
            )
        return
    try:
        server_context(settings.tls)
    except (OSError, ValueError) as error:
        variables = ["LORAGATE_TLS_CERT", "LORAGATE_TLS_KEY"]
        if settings.tls_client_ca is not None:
            variables.append("LORAGATE_TLS_CLIENT_CA")
        raise CliError(
            f"{' and '.join(map(str, settings.tls.paths))} ({', '.join(variables)}) cannot be used: "
            f"{getattr(error, 'strerror', None) or error}; all must be PEM, the key without a password",
            BAD_SETTING,
        ) from None


def warn_about_tls(settings: Settings) -> None:
    """Log a warning for ports that other machines can reach and whose traffic they can read, and for a certificate that
    clients reject now or soon."""
    if settings.tls is not None:
        _warn_of_end(settings.tls.cert)
    elif not is_local(f"{settings.host}:0"):
        log.warning(
            "LISTENING ON %s WITHOUT TLS: keys, prompts and answers cross the network readable. Set LORAGATE_TLS_CERT "
            "and LORAGATE_TLS_KEY, or listen on 127.0.0.1 behind a proxy that ends TLS",
            settings.host,
        )


def _warn_of_end(path: Path) -> None:
    left = days_left(first_certificate(path))
    if left < RENEWAL_DAYS:
        found = "HAS EXPIRED: clients reject it" if left < 0 else f"expires in {left} days"
        log.warning("%s (LORAGATE_TLS_CERT) %s. Replace the file: a restart is not needed", path, found)


def first_certificate(path: Path) -> "Certificate":
    """Return the first certificate of a PEM file. Raise OSError or ValueError."""
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(certificates_in(path)[0].encode())


def days_left(certificate: "Certificate") -> int:
    """Return the full days until the certificate expires; below 0 if it has."""
    return (certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
