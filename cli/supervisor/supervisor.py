"""The life of a server: prepare, start the parts, tell when they are ready, stop them in order."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from loragate.cli.refusal import Refusal
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import demo_key, runtime_file
from loragate.cli.supervisor.child import Child
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.notifications import Announcements
from loragate.cli.supervisor.preparation import prepare_store
from loragate.cli.supervisor.program import Program, run_once
from loragate.cli.supervisor.readiness import until_ready
from loragate.cli.supervisor.runtime_file import Addresses, Pids, Runtime
from loragate.cli.supervisor.stop_signals import StopOrders

_GATEWAY_GRACE_SECONDS = 10.0  # after its own drain deadline
_ENGINE_GRACE_SECONDS = 10.0
_OPTIONAL_GRACE_SECONDS = 30.0


class Supervisor:
    """Runs one server until it is told to stop. Holds no port itself: the caller does."""

    def __init__(
        self, settings: Settings, programs: Programs, where: Addresses, orders: StopOrders, tell: Announcements
    ) -> None:
        self._settings = settings
        self._programs = programs
        self._where = where
        self._orders = orders
        self._tell = tell
        self._engine: Child | None = None
        self._gateways: list[Child] = []
        self._optional: dict[str, Child] = {}  # by their names in the runtime file
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = False
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Returns after a clean stop; raises Refusal when the start failed."""
        starting = self._in_background(self._start())
        await self._orders.requested.wait()
        if self._error is None:
            self._tell.event("stopping; a second signal does not wait for running requests")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await self._stop()
        if self._error is not None:
            raise self._error

    async def _start(self) -> None:
        new_key = await prepare_store(self._settings)
        if new_key is not None:
            self._tell.admin_key(new_key)
        admin_key = self._demo_admin_key(new_key) if self._settings.demo else None
        self._spawn_all(await self._model())
        await until_ready(self._where.base_url, self._settings.workers, self._tell.event)
        if admin_key is not None:
            await run_once(self._programs.demo_provision(self._where.base_url, admin_key))
            demo_key.forget_draft(self._settings.data_dir)
        self._become_ready()

    def _demo_admin_key(self, new_key: str | None) -> str:
        if self._settings.admin_key is not None:
            return self._settings.admin_key.get_secret_value()
        if new_key is None:
            return demo_key.find(self._settings.data_dir)
        demo_key.keep(self._settings.data_dir, new_key)
        return new_key

    async def _model(self) -> str:
        if self._settings.demo:
            return await run_once(self._programs.demo_build())
        if self._settings.model is None:
            raise Refusal("no model to serve")
        return self._settings.model

    def _spawn_all(self, model: str) -> None:
        self._engine = self._child(self._programs.engine(model))
        self._gateways = [self._child(self._programs.gateway()) for _ in range(self._settings.workers)]
        for optional in self._programs.optional(model, self._where, self._tell.event):
            self._optional[optional.name] = self._child(optional.program, essential=False, is_up=optional.is_up)
        for child in (self._engine, *self._gateways, *self._optional.values()):
            self._in_background(child.run())

    def _child(self, program: Program, **options: Any) -> Child:
        return Child(program, on_change=self._write_runtime, say=self._tell.event, **options)

    def _become_ready(self) -> None:
        self._ready = True
        for child in (self._engine, *self._gateways):
            if child is not None:
                child.proven = True
        self._write_runtime()
        self._tell.ready(self._settings, self._where)

    def _write_runtime(self) -> None:
        if not self._ready or self._orders.requested.is_set():
            return
        gateways = tuple(child.pid for child in self._gateways if child.pid is not None)
        engine = self._engine.pid if self._engine else None
        others = {name: child.pid for name, child in self._optional.items()}
        pids = Pids(supervisor=os.getpid(), gateway=gateways, engine=engine, **others)
        troubles = {name: child.trouble for name, child in self._optional.items()}
        where = self._where
        runtime = Runtime(where.base_url, pids, where.grpc_target, where.panel_url, troubles)
        runtime_file.write(self._settings.data_dir, runtime)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)
        return task

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """The first failure of the start or of a child ends the server."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._error = self._error or error
            self._orders.requested.set()

    async def _stop(self) -> None:
        at_once = self._orders.at_once
        drain = self._settings.drain_seconds + _GATEWAY_GRACE_SECONDS
        await asyncio.gather(
            *(gateway.stop(drain, at_once) for gateway in self._gateways),
            *(child.stop(_OPTIONAL_GRACE_SECONDS, at_once) for child in self._optional.values()),
        )
        if self._engine is not None:
            await self._engine.stop(_ENGINE_GRACE_SECONDS, at_once)
        await asyncio.gather(*self._tasks, return_exceptions=True)
