"""The services beside us, and the port."""

import socket
from urllib.parse import urlsplit

from loragate.cli.doctor.blobs import check_blobs
from loragate.cli.doctor.database import check_database
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.doctor.redis import check_redis
from loragate.cli.refusal import Refusal
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import runtime_file
from loragate.cli.supervisor.ports import listen

_SECONDS = 2.0


def check_services(settings: Settings) -> list[Finding]:
    """Each is asked once, within seconds."""
    return [
        *check_database(settings),
        check_blobs(settings),
        *check_redis(settings),
        *check_secret(settings),
        *check_tracing(settings),
        check_port(settings),
    ]


def check_secret(settings: Settings) -> list[Finding]:
    """Replicas must agree on it; one alone makes its own."""
    if settings.replicas > 1 and settings.secret_key is None:
        found = f"not configured, for {settings.replicas} replicas (LORAGATE_REPLICAS)"
        return [fail("secret key", found, "set LORAGATE_SECRET_KEY alike for all")]
    return []


def check_tracing(settings: Settings) -> list[Finding]:
    """Whether the collector takes connections; nothing where traces are off."""
    endpoint = settings.tracing.endpoint
    if endpoint is None:
        return []
    parts = urlsplit(endpoint)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), _SECONDS).close()
    except (OSError, ValueError) as error:
        advice = "start the collector, or correct LORAGATE_TRACING__ENDPOINT: spans are dropped meanwhile"
        return [warn("traces", f"the collector does not answer: {type(error).__name__}", advice)]
    return [ok("traces", "the collector takes connections")]


def check_port(settings: Settings) -> Finding:
    """Free, or held by the server that runs here."""
    running = runtime_file.base_url(settings.data_dir)
    if running is not None:
        return ok("port", f"a server runs at {running}")
    try:
        listen(settings.host, settings.port).close()
    except Refusal as refusal:
        return fail("port", refusal.message, "")
    return ok("port", f"{settings.port} on {settings.host} is free")
