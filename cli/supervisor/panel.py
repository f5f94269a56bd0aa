"""The web panel as an optional part of the server, and its port, which the supervisor holds."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import httpx

from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.optional_dependencies import INSTALL_PANEL, is_panel_installed
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.ports import PANEL, listen
from loragate.cli.supervisor.program import OptionalPart, Program, our_command
from loragate.cli.supervisor.readiness import local_client

_SETTINGS = ("log_format", "panel", "tls_cert", "tls_key", "tls_client_ca", "client_cert", "forwarded_allow_ips")
_RESPONSE_SECONDS = 5.0


@contextmanager
def panel_listener(settings: Settings, notify: Callable[[str], None]) -> Iterator[socket.socket | None]:
    """Yield the panel's socket; None if the panel is disabled, or, after a notification, if its packages are missing.

    Raise CliError for a port that is in use.
    """
    if not settings.panel.enabled:
        yield None
    elif not is_panel_installed():
        notify(f"no web panel: its packages are not installed ({INSTALL_PANEL})")
        yield None
    else:
        with closing(listen(settings.host, settings.panel_port, PANEL)) as listener:
            yield listener


def part(settings: Settings, descriptor: int, where: Addresses) -> OptionalPart:
    """Return the panel on the held socket. It receives the API's address and no secret."""
    panel = settings.panel.model_copy(update={"gateway_url": where.base_url, "gateway_cert": settings.tls_cert})
    chosen = settings.model_copy(update={"panel": panel})
    command = our_command("panel", "--descriptor", str(descriptor))
    program = Program("panel", command, child_environment(chosen, _SETTINGS), (descriptor,))

    async def responds(_: int) -> bool:
        try:
            async with local_client(where.tls, timeout=_RESPONSE_SECONDS) as client:
                return (await client.get(f"{where.panel_url}/healthz")).is_success
        except httpx.HTTPError:
            return False

    return OptionalPart("panel", program, responds)
