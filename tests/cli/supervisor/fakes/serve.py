"""`loragate serve` with fake parts, in a process that `multiprocessing` has forked: importing takes most of a start."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from loragate.cli import optional_dependencies
from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.supervisor import panel
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.program import OptionalPart, Program
from loragate.cli.supervisor.serve import serve

HERE = Path(__file__).parent


async def works(pid: int) -> bool:
    return Path("works").exists()


class FakePrograms(Programs):
    engine_status = 0  # 0: it stays

    @property
    def _socket(self) -> str:
        return self.engine_target.removeprefix("unix:")

    def engine(self, model: str) -> Program:
        assert model == ("demo-model" if self.settings.demo else "any")
        command = (sys.executable, str(HERE / "engine.py"), str(os.getpid()), self._socket, str(self.engine_status))
        return Program("engine", command, dict(os.environ))

    def gateway(self) -> Program:
        descriptor = self.gateway_descriptor
        command = (sys.executable, str(HERE / "gateway.py"), str(os.getpid()), str(descriptor), self._socket)
        return Program("gateway", command, dict(os.environ), (descriptor,))

    def optional(self, model: str, where: Addresses, notify: Callable[[str], None]) -> Iterator[OptionalPart]:
        """Return a worker that is up while the file `works` exists, if LORAGATE_FINETUNE__THREADS requests one; the
        panel is the real one.
        """
        if self.settings.finetune.threads is not None:
            die_with_us = (
                f"from loragate.cli.parent_death import exit_when_parent_dies; exit_when_parent_dies({os.getpid()}); "
            )
            code = "import sys; sys.exit(2)" if Path("unfit").exists() else "import signal; signal.pause()"
            command = (sys.executable, "-c", die_with_us + code)
            yield OptionalPart("finetune", Program("worker", command, dict(os.environ)), works)
        if self.panel_descriptor is not None:
            yield panel.part(self.settings, self.panel_descriptor, where)

    def demo_model(self) -> str:
        return "demo-model"

    def demo_provision(self, base_url: str, admin_key: str) -> Program:
        """Fail while the file `unprovided` exists."""
        content = json.dumps({"admin_key": admin_key, "tenants": [{"api_key": "lg-demo", "adapters": ["french"]}]})
        code = (
            "import pathlib, urllib.request\n"
            f"assert urllib.request.urlopen({base_url + '/readyz'!r}).status == 200\n"
            "assert not pathlib.Path('unprovided').exists()\n"
            f"pathlib.Path('.loragate/demo.json').write_text({content!r})"
        )
        return Program("demo", (sys.executable, "-c", code), dict(os.environ))


def run(folder: Path, environment: dict[str, str], stdout: Connection, engine_status: int, missing: str) -> None:
    """Serve in this folder, without the library `missing`; the engine ends with this status. Exit as the command does.

    stderr goes to a file of that name.
    """
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR has changed
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    with Path("stderr").open("wb") as stderr:
        os.dup2(stderr.fileno(), 2)
    FakePrograms.engine_status = engine_status
    if missing:
        optional_dependencies.find_spec = lambda name: None if name == missing else find_spec(name)  # type: ignore[attr-defined]
    try:
        sys.exit(asyncio.run(serve(load(), FakePrograms)))
    except CliError as error:
        print(error.message, file=sys.stderr)
        sys.exit(error.status)
