"""The certificate of the ports, checked at the start, and the warning about ports without one."""

import logging
import ssl

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import Settings
from loragate.engine.link_security import is_local

log = logging.getLogger(__name__)


def check_tls(settings: Settings) -> None:
    """Raise CliError for a certificate that cannot be used, or without its key."""
    if settings.tls_cert is None and settings.tls_key is None:
        return
    if settings.tls_cert is None or settings.tls_key is None:
        raise CliError("LORAGATE_TLS_CERT and LORAGATE_TLS_KEY belong together: set both or none", BAD_SETTING)
    try:
        # The password is for keys that have one: without it, OpenSSL would ask for it on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (OSError, ssl.SSLError) as error:
        raise CliError(
            f"{settings.tls_cert} and {settings.tls_key} (LORAGATE_TLS_CERT, LORAGATE_TLS_KEY) cannot be used: "
            f"{error.strerror or error}; both must be PEM, the key without a password",
            BAD_SETTING,
        ) from None


def warn_without_tls(settings: Settings) -> None:
    """Log a warning for ports that other machines can reach and whose traffic they can read."""
    if settings.tls_cert is None and not is_local(f"{settings.host}:0"):
        log.warning(
            "LISTENING ON %s WITHOUT TLS: keys, prompts and answers cross the network readable. Set LORAGATE_TLS_CERT "
            "and LORAGATE_TLS_KEY, or listen on 127.0.0.1 behind a proxy that ends TLS",
            settings.host,
        )
