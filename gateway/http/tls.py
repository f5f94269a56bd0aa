"""Certificates of the HTTP ports, as this installation's own clients verify them."""

import ssl
from pathlib import Path

_END = "-----END CERTIFICATE-----"


def pinned(certificate: Path) -> ssl.SSLContext:
    """Return a client's context for a server that must show the first certificate of this file, and prove its key.

    The name is not compared: on its own machine a server is reached by an address, which its certificate seldom names.
    """
    first, end, _ = certificate.read_text(encoding="ascii").partition(_END)
    context = ssl.create_default_context(cadata=first + end)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, not who issued it
    return context
