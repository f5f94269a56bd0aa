"""`loragate serve` with fake parts. Argument: the engine's exit status, 0 to stay."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.supervisor import panel
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.program import OptionalPart, Program
from loragate.cli.supervisor.serve import serve

HERE = Path(__file__).parent
die_with_us = f"from loragate.cli.parent_death import exit_when_parent_dies; exit_when_parent_dies({os.getpid()}); "


async def works(pid: int) -> bool:
    return Path("works").exists()


class FakePrograms(Programs):
    @property
    def _socket(self) -> str:
        return self.engine_target.removeprefix("unix:")

    def engine(self, model: str) -> Program:
        assert model == ("demo-model" if self.settings.demo else "any")
        command = (sys.executable, str(HERE / "engine.py"), str(os.getpid()), self._socket, sys.argv[1])
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


try:
    sys.exit(asyncio.run(serve(load(), FakePrograms)))
except CliError as error:
    print(error.message, file=sys.stderr)
    sys.exit(error.status)
