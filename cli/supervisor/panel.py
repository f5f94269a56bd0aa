"""The web panel among the supervisor's parts, and its port, which is held for as long as the server runs."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import httpx

from loragate.cli.optional_dependencies import INSTALL_PANEL, is_panel_installed
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.optional_part import OptionalPart
from loragate.cli.supervisor.ports import PANEL, listen
from loragate.cli.supervisor.program import Program, our_command
from loragate.cli.supervisor.runtime_file import Addresses

_SETTINGS = ("log_format", "panel")
_ANSWER_SECONDS = 5.0


@contextmanager
def panel_listener(settings: Settings, say: Callable[[str], None]) -> Iterator[socket.socket | None]:
    """None where it is switched off, or where `say` has to hear that its packages are not installed. Raises Refusal for
    a port that is in use."""
    if not settings.panel.enabled:
        yield None
    elif not is_panel_installed():
        say(f"no web panel: its packages are not installed ({INSTALL_PANEL})")
        yield None
    else:
        with closing(listen(settings.host, settings.panel_port, PANEL)) as listener:
            yield listener


def part(settings: Settings, descriptor: int, where: Addresses) -> OptionalPart:
    """On the socket that we hold. It knows the API's address and no secret."""
    panel = settings.panel.model_copy(update={"gateway_url": where.base_url})
    chosen = settings.model_copy(update={"panel": panel})
    command = our_command("panel", "--descriptor", str(descriptor))
    program = Program("panel", command, child_environment(chosen, _SETTINGS), (descriptor,))

    async def answers(_: int) -> bool:
        try:
            async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as client:
                return (await client.get(f"{where.panel_url}/healthz")).is_success
        except httpx.HTTPError:
            return False

    return OptionalPart("panel", program, answers)
