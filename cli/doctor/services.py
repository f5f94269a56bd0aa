"""Checks of the services that the server uses, and of its port."""

import socket
from urllib.parse import urlsplit

from loragate.cli.data_dir import runtime_file
from loragate.cli.doctor.blobs import check_blobs
from loragate.cli.doctor.certificates import check_certificates
from loragate.cli.doctor.database import check_database
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.doctor.redis import check_redis
from loragate.cli.doctor.signatures import check_signatures
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.ports import listen

_SECONDS = 2.0


def check_services(settings: Settings) -> list[Finding]:
    """Check each service once, within seconds."""
    return [
        *check_database(settings),
        *check_signatures(settings),
        check_blobs(settings),
        *check_redis(settings),
        *check_secret(settings),
        *check_tracing(settings),
        *check_certificates(settings),
        check_port(settings),
    ]


def check_secret(settings: Settings) -> list[Finding]:
    """Check that replicas have a common secret key; a single one creates its own."""
    if settings.replicas > 1 and settings.secret_key is None:
        found = f"not configured, for {settings.replicas} replicas (LORAGATE_REPLICAS)"
        return [fail("secret key", found, "set the same LORAGATE_SECRET_KEY for all")]
    return []


def check_tracing(settings: Settings) -> list[Finding]:
    """Check that the trace collector accepts connections. Nothing is checked when tracing is off."""
    endpoint = settings.tracing.endpoint
    if not endpoint:
        return []
    parts = urlsplit(endpoint)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), _SECONDS).close()
    except (OSError, ValueError) as error:
        advice = "start the collector, or correct LORAGATE_TRACING__ENDPOINT: until then, spans are dropped"
        return [warn("traces", f"the collector does not respond: {type(error).__name__}", advice)]
    return [ok("traces", "the collector accepts connections")]


def check_port(settings: Settings) -> Finding:
    """Check that the port is free, or used by the server that runs in this data directory."""
    running = runtime_file.read(settings.data_dir)
    if running is not None:
        return ok("port", f"a server runs at {running.base_url}")
    try:
        listen(settings.host, settings.port).close()
    except CliError as error:
        return fail("port", error.message, "")
    return ok("port", f"{settings.port} on {settings.host} is free")
