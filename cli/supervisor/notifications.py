"""The supervisor's output: events on stderr, and two lines for scripts on stdout."""

import json
import logging
import sys

from rich.console import Console
from rich.table import Table

from loragate.cli.data_dir.demo_key import DEMO_FILE
from loragate.cli.data_dir.preparation import print_admin_key
from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.readiness import USUAL
from loragate.engine.runtime.log_format import Fields, LogFormat, for_terminal

log = logging.getLogger(__name__)

READY = "loragate ready"


class Notifications:
    """Prints the admin key once in an installation's life and `loragate ready` once per start, both on stdout.

    Everything else goes to stderr: as text, or as "json" log records. For a person at a terminal, stages replace what
    every start waits for, and the admin key stands with the addresses.
    """

    def __init__(self, form: LogFormat = "auto") -> None:
        self._as_log = form == "json"
        self._for_terminal = for_terminal(form)
        self._new_key: str | None = None  # not printed yet
        self._console = Console(stderr=True, highlight=False)

    def event(self, words: str) -> None:
        """Report an event."""
        if self._as_log:
            log.info("%s", words)
            return
        self._console.print(f"loragate: {words}", style="dim", markup=False, soft_wrap=True)

    def stage(self, words: str) -> None:
        """Report what the start does now, to a person at a terminal."""
        if self._for_terminal:
            self._console.print(f"==> {words}", markup=False, soft_wrap=True)

    def waiting(self, missing: str) -> None:
        """Report what is missing until requests can be served."""
        if not self._for_terminal or missing not in USUAL:
            self.event(f"waiting for {missing}")

    def admin_key(self, key: str) -> None:
        """Print a new admin key: now, because a script may wait for it, or to a person with the addresses."""
        self._new_key = key
        if not (self._for_terminal and sys.stdout.isatty()):
            self.end()

    def end(self) -> None:
        """Print a new admin key that has not been printed, because it cannot be read again."""
        if self._new_key is not None:
            print_admin_key(self._new_key)
        self._new_key = None

    def ready(self, settings: Settings, where: Addresses) -> None:
        """Print the addresses, then the line that scripts wait for."""
        if self._as_log:
            log.info(
                Fields(
                    message="ready", base_url=where.base_url, grpc_target=where.grpc_target, panel_url=where.panel_url
                )
            )
        else:
            self._show(settings, where)
        self.end()
        print(READY, flush=True)

    def _show(self, settings: Settings, where: Addresses) -> None:
        table = Table(show_header=False, box=None, padding=(0, 2))
        table.add_row("REST", f"{where.base_url}/v1")
        table.add_row("gRPC", where.grpc_target)
        if where.panel_url is not None:
            table.add_row("panel", where.panel_url)
        table.add_row("data", str(settings.data_dir))
        table.add_row("stop", "Ctrl-C or SIGTERM; running requests are finished first")
        self._console.print(table)
        if settings.demo:
            self._try_it(settings, where.base_url)

    def _try_it(self, settings: Settings, base_url: str) -> None:
        """Print a request for each of the first two tenants, ready to paste."""
        file = settings.data_dir / DEMO_FILE
        try:
            tenants = json.loads(file.read_text(encoding="utf-8"))["tenants"][:2]
            calls = [_curl(base_url, tenant["api_key"], tenant["adapters"][0]) for tenant in tenants]
        except (OSError, ValueError, LookupError, TypeError):
            return
        self._console.print(f"Try it (the keys are in {file}):", style="bold", soft_wrap=True)
        for call in calls:
            self._console.print(call, markup=False, soft_wrap=True)


def _curl(base_url: str, api_key: str, model: str) -> str:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "What is the capital of France?"}]})
    return (
        f"  curl -s {base_url}/v1/chat/completions -H 'Authorization: Bearer {api_key}' "
        f"-H 'Content-Type: application/json' -d '{body}'"
    )
