"""The life cycle of a server: prepare, start the parts, report readiness, stop them in order."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from loragate.cli.data_dir import demo_key, runtime_file
from loragate.cli.data_dir.preparation import prepare_store
from loragate.cli.data_dir.runtime_file import Addresses, Pids, RunningEngine, Runtime
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.child import Child, first_completed
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.notifications import Notifications
from loragate.cli.supervisor.program import OptionalPart, Program, run_once
from loragate.cli.supervisor.readiness import until_ready
from loragate.cli.supervisor.stop_signals import StopSignals
from loragate.gateway.connections.tls import ANY_VALID

T = TypeVar("T")
WhenReady = Callable[[Addresses], Awaitable[None]]
_GATEWAY_GRACE_SECONDS = 10.0  # after its own drain deadline
_ENGINE_GRACE_SECONDS = 10.0
_OPTIONAL_GRACE_SECONDS = 30.0
_PREPARATION_GRACE_SECONDS = 5.0  # for a database that does not respond


class Supervisor:
    """Runs one server until a signal stops it. The caller holds the ports."""

    def __init__(
        self,
        settings: Settings,
        programs: Programs,
        where: Addresses,
        signals: StopSignals,
        notifications: Notifications,
        when_ready: WhenReady | None = None,
    ) -> None:
        self._settings = settings
        self._programs = programs
        self._where = where
        self._signals = signals
        self._notifications = notifications
        self._when_ready = when_ready
        self._engines: list[Child] = []
        self._gateways: list[Child] = []
        self._optional: dict[str, Child] = {}  # by their names in the runtime file
        self._tasks: list[asyncio.Task[Any]] = []
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
        self._notifications.end()
        if self._error is not None:
            raise self._error

    async def _start(self) -> None:
        """Start the slowest part first, and the optional ones when they no longer delay the first answer."""
        self._notifications.stage("starting the engine and the gateway")
        model = self._model()
        optional = tuple(self._programs.optional(model, self._where, self._notifications.event))
        engines = [self._programs.engine(model)]
        engines += [self._programs.other_engine(model, number) for number in range(1, self._settings.engines)]
        self._engines = [self._child(program) for program in engines]
        for engine in self._engines:
            self._run_in_background(engine.run())
        # Not cancelled with this task: a new admin key that is stored is printed, too.
        admin_key = await asyncio.shield(self._run_in_background(self._prepare()))
        self._gateways = [self._child(self._programs.gateway()) for _ in range(self._settings.workers)]
        for gateway in self._gateways:
            self._run_in_background(gateway.run())
        own_engines = {each.id for each in self._programs.own_engines}
        await until_ready(self._where, self._settings.workers, own_engines, self._notifications.waiting)
        if admin_key is not None:
            self._notifications.stage("adding the demo's tenants and adapters")
            await run_once(self._programs.demo_provision(self._where.base_url, admin_key))
            demo_key.remove_draft(self._settings.data_dir)
        await self._start_optional(optional)
        self._report_ready()
        if self._when_ready is not None:
            await self._when_ready(self._where)

    async def _prepare(self) -> str | None:
        """Prepare the data and print a new admin key. Return the key that the demo needs, or None without a demo."""
        new_key = await prepare_store(self._settings)
        if new_key is not None:
            self._notifications.admin_key(new_key)
        return self._demo_admin_key(new_key) if self._settings.demo else None

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

    async def _start_optional(self, parts: Iterable[OptionalPart]) -> None:
        for part in parts:
            child = self._child(part.program, essential=False, is_up=part.is_up)
            self._optional[part.name] = child
            self._run_in_background(child.run())
            await child.started.wait()

    def _child(self, program: Program, **options: Any) -> Child:
        return Child(program, on_change=self._write_runtime, notify=self._notifications.event, **options)

    def _report_ready(self) -> None:
        self._ready = True
        for child in (*self._engines, *self._gateways):
            child.has_worked = True
        self._write_runtime()
        self._notifications.ready(self._settings, self._where)

    def _write_runtime(self) -> None:
        if not self._ready or self._signals.requested.is_set():
            return
        gateways = tuple(child.pid for child in self._gateways if child.pid is not None)
        own = zip(self._programs.own_engines, self._engines, strict=True)
        engines = tuple(RunningEngine(address.id, address.target, child.pid) for address, child in own)
        others = {name: child.pid for name, child in self._optional.items()}
        pids = Pids(supervisor=os.getpid(), gateway=gateways, engine=engines[0].pid, **others)
        troubles = {name: child.trouble for name, child in self._optional.items()}
        where = self._where
        tls = where.tls or ANY_VALID
        cert, client_cert = (None if each is None else str(each) for each in (tls.server_cert, tls.client_cert))
        runtime = Runtime(
            where.base_url, pids, where.grpc_target, where.panel_url, troubles, cert, client_cert, engines
        )
        runtime_file.write(self._settings.data_dir, runtime)

    def _run_in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._record_end)
        self._tasks.append(task)
        return task

    def _record_end(self, task: asyncio.Task[Any]) -> None:
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
        await asyncio.gather(*(engine.stop(_ENGINE_GRACE_SECONDS, immediate) for engine in self._engines))
        ends = asyncio.gather(*self._tasks, return_exceptions=True)
        await first_completed(asyncio.wait([ends]), immediate.wait(), seconds=_PREPARATION_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await ends
