"""The life cycle of a server: prepare, start the parts, report readiness, stop them in order."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from loragate.cli.data_dir import demo_key, runtime_file
from loragate.cli.data_dir.preparation import prepare_store
from loragate.cli.data_dir.runtime_file import Addresses, Pids, Runtime
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.child import Child
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.notifications import Notifications
from loragate.cli.supervisor.program import Program, run_once
from loragate.cli.supervisor.readiness import until_ready
from loragate.cli.supervisor.stop_signals import StopSignals

_GATEWAY_GRACE_SECONDS = 10.0  # after its own drain deadline
_ENGINE_GRACE_SECONDS = 10.0
_OPTIONAL_GRACE_SECONDS = 30.0


class Supervisor:
    """Runs one server until a signal stops it. The caller holds the ports."""

    def __init__(
        self,
        settings: Settings,
        programs: Programs,
        where: Addresses,
        signals: StopSignals,
        notifications: Notifications,
    ) -> None:
        self._settings = settings
        self._programs = programs
        self._where = where
        self._signals = signals
        self._notifications = notifications
        self._engine: Child | None = None
        self._gateways: list[Child] = []
        self._optional: dict[str, Child] = {}  # by their names in the runtime file
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = False
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Run the server and return after a clean shutdown. Raise CliError when the start fails."""
        starting = self._run_in_background(self._start())
        await self._signals.requested.wait()
        if self._error is None:
            self._notifications.event("stopping after running requests; a second signal stops immediately")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await self._stop()
        if self._error is not None:
            raise self._error

    async def _start(self) -> None:
        new_key = await prepare_store(self._settings)
        if new_key is not None:
            self._notifications.admin_key(new_key)
        admin_key = self._demo_admin_key(new_key) if self._settings.demo else None
        self._spawn_all(self._model())
        await until_ready(self._where, self._settings.workers, self._notifications.event)
        if admin_key is not None:
            await run_once(self._programs.demo_provision(self._where.base_url, admin_key))
            demo_key.remove_draft(self._settings.data_dir)
        self._report_ready()

    def _demo_admin_key(self, new_key: str | None) -> str:
        if self._settings.admin_key is not None:
            return self._settings.admin_key.get_secret_value()
        if new_key is None:
            return demo_key.find(self._settings.data_dir)
        demo_key.save(self._settings.data_dir, new_key)
        return new_key

    def _model(self) -> str:
        if self._settings.demo:
            return self._programs.demo_model()
        if self._settings.model is None:
            raise CliError("no model to serve")
        return self._settings.model

    def _spawn_all(self, model: str) -> None:
        self._engine = self._child(self._programs.engine(model))
        self._gateways = [self._child(self._programs.gateway()) for _ in range(self._settings.workers)]
        for optional in self._programs.optional(model, self._where, self._notifications.event):
            self._optional[optional.name] = self._child(optional.program, essential=False, is_up=optional.is_up)
        for child in (self._engine, *self._gateways, *self._optional.values()):
            self._run_in_background(child.run())

    def _child(self, program: Program, **options: Any) -> Child:
        return Child(program, on_change=self._write_runtime, notify=self._notifications.event, **options)

    def _report_ready(self) -> None:
        self._ready = True
        for child in (self._engine, *self._gateways):
            if child is not None:
                child.has_worked = True
        self._write_runtime()
        self._notifications.ready(self._settings, self._where)

    def _write_runtime(self) -> None:
        if not self._ready or self._signals.requested.is_set():
            return
        gateways = tuple(child.pid for child in self._gateways if child.pid is not None)
        engine = self._engine.pid if self._engine else None
        others = {name: child.pid for name, child in self._optional.items()}
        pids = Pids(supervisor=os.getpid(), gateway=gateways, engine=engine, **others)
        troubles = {name: child.trouble for name, child in self._optional.items()}
        where = self._where
        certificate = None if where.tls_cert is None else str(where.tls_cert)
        runtime = Runtime(where.base_url, pids, where.grpc_target, where.panel_url, troubles, certificate)
        runtime_file.write(self._settings.data_dir, runtime)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._record_end)
        self._tasks.append(task)
        return task

    def _record_end(self, task: asyncio.Task[None]) -> None:
        """Stop the server at the first failure of the start or of a child."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._error = self._error or error
            self._signals.requested.set()

    async def _stop(self) -> None:
        immediate = self._signals.immediate
        drain = self._settings.drain_seconds + _GATEWAY_GRACE_SECONDS
        await asyncio.gather(
            *(gateway.stop(drain, immediate) for gateway in self._gateways),
            *(child.stop(_OPTIONAL_GRACE_SECONDS, immediate) for child in self._optional.values()),
        )
        if self._engine is not None:
            await self._engine.stop(_ENGINE_GRACE_SECONDS, immediate)
        await asyncio.gather(*self._tasks, return_exceptions=True)
