"""The loop of a trainer: whose commands are run next."""

import asyncio
import logging
from collections.abc import Set

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.notices.wakeups import Wakeups
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.lease import Progress
from loragate.adapter_store.training.objects import (
    Command,
    CommandKind,
    ErrorCategory,
    Outcome,
    RequestStatus,
    RunStatus,
)
from loragate.trainer.worker.commands import Commands
from loragate.trainer.worker.computations import INTERNAL_ERROR, Computations, Running
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.held_run import HeldRun
from loragate.trainer.worker.held_runs import HeldRuns, Waiting
from loragate.trainer.worker.metrics import TrainerMetrics
from loragate.trainer.worker.snapshots import Snapshots

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_STEP_COST = 64  # of a command, in tokens of a forward pass


class TrainerLoop:
    """Runs the commands of all tenants in turns: those of the tenant that was given least come first.

    One step of forward_backwards is computed at a time. Beside it, the other commands of runs that it does not have are
    run, one at a time.
    """

    def __init__(
        self,
        *,
        store: Store,
        compute: Compute,
        commands: Commands,
        snapshots: Snapshots,
        config: TrainerConfig,
        wakeups: Wakeups,
        base_model: str,
        metrics: TrainerMetrics | None = None,
    ) -> None:
        metrics = metrics or TrainerMetrics()
        self._compute = compute
        self._snapshots = snapshots
        self._commands = commands
        self._config = config
        self._wakeups = wakeups
        self._runs = HeldRuns(store, compute, snapshots, config, wakeups, base_model, metrics)
        self._computations = Computations(store, compute, self._runs, config, metrics)
        self._step: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until cancelled; then give the runs back."""
        renewals = asyncio.create_task(self._runs.run_renewal_loop(), name="training-leases")
        try:
            while True:
                try:
                    progressed = await self._turn()
                except StoreError as error:
                    log.warning("the store is unavailable: %s", error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                except Exception:  # one run's error must not end the others
                    log.exception("a turn failed")
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if not progressed:
                    await self._wakeups.wait(self._config.poll_seconds)
        finally:
            tasks = [renewals] if self._step is None else [renewals, self._step]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._snapshots.close()
            await self._runs.release_all()

    async def _turn(self) -> bool:
        """Start the next step, or run another command; return whether there was anything to do."""
        self._end_step()
        busy = self._computations.busy
        self._runs.drop_lost(busy)
        waiting = await self._runs.read_waiting(busy)
        first = await self._first(waiting, busy)
        begun = None if self._step is not None else self._computations.next()
        if begun is not None and (first is None or self._computations.served(begun) <= self._runs.served(first)):
            self._start_step(begun)
        elif first is None:
            if not waiting:
                await self._runs.unload_idle(busy)
            return False
        else:
            await self._next(first, waiting)
        return True

    async def _next(self, held: HeldRun, waiting: Waiting) -> None:
        command = waiting[held.id][0]
        if not _can_run(held, command):
            await self._runs.record(held, _passed_over(held, command))
        elif command.kind is CommandKind.FORWARD_BACKWARD:
            begun = await self._computations.begin(held, waiting)
            if begun is not None:
                self._start_step(begun)
        else:
            with self._compute.preemption.running():
                await self._execute(held, command)

    async def _first(self, waiting: Waiting, busy: Set[str]) -> HeldRun | None:
        """Return the first run, in the order of turns, whose next command can be run now, and bring it into memory."""
        for held in sorted((self._runs[each] for each in waiting), key=self._runs.served):
            command = waiting[held.id][0]
            loaded = held.id in self._compute.loaded
            if self._step is not None and _can_run(held, command):
                is_step = command.kind is CommandKind.FORWARD_BACKWARD
                if is_step or not (loaded or held.run.next_seq == 0):  # loading may compute steps again
                    continue
            if loaded or held.run.status is RunStatus.FAILED or await self._runs.load(held, waiting, busy):
                return held
        return None

    def _start_step(self, running: Running) -> None:
        self._step = asyncio.create_task(self._computations.advance(running), name="training-step")
        self._step.add_done_callback(lambda _: self._wakeups.arrive())

    def _end_step(self) -> None:
        """Take note of a step's end. Raise what it raised."""
        if self._step is not None and self._step.done():
            step, self._step = self._step, None
            step.result()

    async def _execute(self, held: HeldRun, command: Command) -> None:
        try:
            progress = await self._commands.execute(held, command)
        except LeaseLost:
            self._runs.forget(held)
            return
        except StoreError:
            raise
        except Exception:
            log.exception("training run %s: %s failed", held.id, command.kind)
            failed = Outcome.failed(INTERNAL_ERROR, ErrorCategory.SERVER)
            progress = Progress({command.seq: failed}, held.run.gradients_failed, failed=command.seq == 0)
        self._runs.serve(held, _STEP_COST)
        await self._runs.record(held, progress)
        if self._runs.holds(held) and held.steps_since_snapshot >= self._config.snapshot_steps:
            await self._snapshots.begin(held)


def _can_run(held: HeldRun, command: Command) -> bool:
    """Return False for a command that was rejected, or whose run could not be created."""
    return command.status is not RequestStatus.FAILED and held.run.status is not RunStatus.FAILED


def _passed_over(held: HeldRun, command: Command) -> Progress:
    """Return the progress over a command that is not run."""
    failed = held.run.gradients_failed or command.kind is CommandKind.FORWARD_BACKWARD
    outcome = Outcome.failed("The training run could not be created, or its state was lost.")
    return Progress({command.seq: outcome}, failed)
