"""The loop of a trainer: whose commands are run next, their results, and the leases of the runs."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loragate.adapter_store.errors import Conflict, Invalid, NotFound, StoreError
from loragate.adapter_store.jobs.lease import LEASE, LeaseLost
from loragate.adapter_store.notices.wakeups import GATEWAY, Wakeups
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
from loragate.adapter_store.usage.training import TrainingUsage
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.trainer import ForwardBackward, ForwardBackwardResult
from loragate.trainer.worker.commands import Commands
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.held_run import HeldRun, lora_settings
from loragate.trainer.worker.metrics import TrainerMetrics
from loragate.trainer.worker.requests import document, forward_backward, forward_backward_output

log = logging.getLogger(__name__)

_CLAIMED = 64  # runs at a time
_LOOKED_AT = 32  # commands of a run at a time
_IDLE_SECONDS = 300.0  # a run without commands for so long is unloaded
_RETRY_SECONDS = 1.0
_BACKWARD_COST, _FORWARD_COST, _STEP_COST = 3, 1, 64  # in tokens of a forward pass
_INTERNAL_ERROR = "The trainer failed on this request; the server's log has the cause."

Waiting = Mapping[str, Sequence[Command]]
"""The commands that can be run, by run."""


class TrainerLoop:
    """Runs the commands of all tenants in turns: those of the tenant that was given least come first, and
    forward_backwards of several runs are computed together."""

    def __init__(
        self,
        *,
        store: Store,
        compute: Compute,
        commands: Commands,
        config: TrainerConfig,
        wakeups: Wakeups,
        base_model: str,
        metrics: TrainerMetrics | None = None,
    ) -> None:
        self._store = store
        self._compute = compute
        self._commands = commands
        self._config = config
        self._wakeups = wakeups
        self._base_model = base_model
        self._metrics = metrics or TrainerMetrics()
        self._held: dict[str, HeldRun] = {}
        self._served: defaultdict[str, float] = defaultdict(float)  # by tenant
        self._used_at: dict[str, float] = {}
        self._lost: set[str] = set()  # runs that this trainer holds no longer

    async def run(self) -> None:
        """Run until cancelled; then give the runs back."""
        renewals = asyncio.create_task(self._run_renewal_loop(), name="training-leases")
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
            renewals.cancel()
            await asyncio.wait([renewals])
            await self._release_all()

    async def _turn(self) -> bool:
        """Do the next piece of work; return whether there was any."""
        await self._drop_lost()
        waiting = await self._read_waiting()
        if not waiting:
            await self._unload_idle()
            return False
        first = await self._load_first(waiting)
        if first is None:
            return False
        command = waiting[first.id][0]
        if command.status is RequestStatus.FAILED or first.run.status is RunStatus.FAILED:
            await self._record(first, self._passed_over(first, command))
        elif command.kind is CommandKind.FORWARD_BACKWARD:
            await self._forward_backward(first, waiting)
        else:
            await self._execute(first, command)
        return True

    async def _claim(self) -> None:
        async with self._store.admin(write=True) as admin:
            claims = await admin.training_queue.claim(self._config.name, _CLAIMED)
        for claim in claims:
            await self._drop(claim.run.id)  # what this trainer lost may be in memory still
            self._held[claim.run.id] = HeldRun(claim.tenant_id, claim.weight, claim.run, self._config.name)
            least = min((self._served[each.tenant_id] for each in self._held.values()), default=0.0)
            self._served[claim.tenant_id] = max(self._served[claim.tenant_id], least)
            self._used_at[claim.run.id] = time.monotonic()

    async def _read_waiting(self) -> dict[str, Sequence[Command]]:
        async with self._store.admin() as admin:
            others_wait = await admin.training_queue.waits()
            ready = await admin.training_queue.ready(self._config.name)
        if others_wait:
            await self._claim()
            ready = ready | self._held.keys()
        waiting = {}
        for run_id in ready:
            held = self._held.get(run_id)
            if held is not None:
                async with self._store.tenant(held.tenant_id) as scope:
                    held.run = await scope.training_runs.get(run_id)  # a gap or an operator may have changed it
                    commands = await scope.training_lease.waiting(held.run, _LOOKED_AT)
                if commands:
                    waiting[run_id] = commands
                    self._used_at[run_id] = time.monotonic()
        return waiting

    async def _load_first(self, waiting: Waiting) -> HeldRun | None:
        """Return the first run in the order of turns that is, or can be brought, in memory."""
        for held in sorted((self._held[each] for each in waiting), key=lambda each: self._served[each.tenant_id]):
            if held.id in self._compute.loaded or held.run.status is RunStatus.FAILED:
                return held
            if not await self._make_room(self._needed(held, waiting[held.id][0]), waiting):
                continue
            try:
                await held.load(self._store, self._compute)
            except LookupError as error:
                log.error("training run %s cannot be continued: %s", held.id, error)
                words = "The state of this training run was lost; continue from its last checkpoint."
                lost = Outcome.failed(words, ErrorCategory.SERVER)
                outcomes = {waiting[held.id][0].seq: lost}
                await self._record(held, Progress(outcomes, gradients_failed=False, failed=True))
                return None
            return held
        return None

    def _needed(self, held: HeldRun, command: Command) -> int:
        """Return the bytes of a run that is not in memory."""
        settings = held.run.settings or {}
        if command.kind is CommandKind.CREATE:
            settings = dict(document(command.payload))
        if not settings.get("rank"):
            return 0
        try:
            return self._compute.trainer.estimate(lora_settings(dict(settings)))
        except TrainingRejected:  # its creation fails with the reason
            return 0

    async def _make_room(self, needed: int, waiting: Waiting) -> bool:
        """Unload runs, those first that were not used for longest, until there is room for a run."""
        while not self._compute.has_room(needed):
            idle = [each for each in self._compute.loaded if each not in waiting] or list(self._compute.loaded)
            if not idle:
                return True  # a run that is larger than the memory set aside is alone
            if not await self._unload(min(idle, key=lambda each: self._used_at.get(each, 0.0))):
                return False
        return True

    async def _forward_backward(self, first: HeldRun, waiting: Waiting) -> None:
        """Compute the next forward_backwards of the run whose turn it is, and of others beside it while they fit."""
        others = (self._held[each] for each in waiting if each != first.id and each in self._compute.loaded)
        order = [first, *sorted(others, key=lambda each: self._served[each.tenant_id])]
        chosen: list[tuple[HeldRun, Command, ForwardBackward]] = []
        rejected: dict[str, Progress] = {}
        room = self._config.max_step_tokens
        for held in order:
            for command in waiting[held.id]:
                if command.kind is not CommandKind.FORWARD_BACKWARD or command.status is RequestStatus.FAILED:
                    break
                if chosen and room <= 0:
                    break
                pending = sum(_tokens(each) for owner, _, each in chosen if owner.tenant_id == held.tenant_id)
                request = await self._checked(held, command, pending)
                if isinstance(request, Outcome):
                    if not any(each is held for each, _, _ in chosen):
                        rejected[held.id] = Progress({command.seq: request}, gradients_failed=True)
                    break
                chosen.append((held, command, request))
                room -= _tokens(request)
        for run_id, progress in rejected.items():
            await self._clear_gradients(run_id)
            await self._record(self._held[run_id], progress)
        if chosen:
            await self._compute_together(chosen)

    async def _checked(self, held: HeldRun, command: Command, pending: int) -> ForwardBackward | Outcome:
        """Return a request that can be computed. `pending` tokens of its tenant are computed with it."""
        try:
            request = forward_backward(held.id, command.payload)
            self._compute.trainer.check(request.data, request.loss_fn, request.loss_config)
        except TrainingRejected as error:
            return Outcome.failed(str(error))
        async with self._store.tenant(held.tenant_id) as scope:
            exceeded = await scope.training_lease.exceeded(pending)
        return request if exceeded is None else Outcome.failed(exceeded)

    async def _compute_together(self, chosen: Sequence[tuple[HeldRun, Command, ForwardBackward]]) -> None:
        started = time.monotonic()
        results: Sequence[ForwardBackwardResult | TrainingRejected]
        try:
            requests = [request for _, _, request in chosen]
            results = await self._compute.run(lambda trainer: trainer.forward_backward(requests))
        except Exception:
            log.exception("forward_backward failed")
            results = [TrainingRejected(_INTERNAL_ERROR)] * len(chosen)
        seconds = time.monotonic() - started
        total = sum(_tokens(request) for _, _, request in chosen)
        self._metrics.record_step(seconds, total, len({held.id for held, _, _ in chosen}))
        for held in {id(each): each for each, _, _ in chosen}.values():
            outcomes, tokens, failed = {}, 0, held.run.gradients_failed
            for (owner, command, request), result in zip(chosen, results, strict=True):
                if owner is not held:
                    continue
                if isinstance(result, TrainingRejected):
                    outcomes[command.seq] = Outcome.failed(str(result))
                    failed = True
                    await self._clear_gradients(held.id)
                else:
                    count, loss = _tokens(request), result.metrics["loss:sum"]
                    done = Outcome.done(forward_backward_output(result))
                    outcomes[command.seq] = replace(done, loss=loss, tokens=count)
                    tokens += count
                cost = _FORWARD_COST if request.forward_only else _BACKWARD_COST
                self._served[held.tenant_id] += cost * _tokens(request) / held.weight
            used = TrainingUsage(tokens, int(1000 * seconds * tokens / max(1, total)))
            price = self._config.price(held.tenant_id)
            amount = None if price is None else price * tokens
            await self._record(held, Progress(outcomes, failed, used=used, amount=amount))

    async def _execute(self, held: HeldRun, command: Command) -> None:
        try:
            progress = await self._commands.execute(held, command)
        except LeaseLost:
            await self._drop(held.id)
            return
        except StoreError:
            raise
        except Exception:
            log.exception("training run %s: %s failed", held.id, command.kind)
            failed = Outcome.failed(_INTERNAL_ERROR, ErrorCategory.SERVER)
            progress = Progress({command.seq: failed}, held.run.gradients_failed, failed=command.seq == 0)
        self._served[held.tenant_id] += _STEP_COST / held.weight
        await self._record(held, progress)
        is_due = held.steps_since_snapshot >= self._config.snapshot_steps
        if held.id in self._held and (is_due or command.kind is CommandKind.LOAD):
            await held.save(self._store, self._compute)

    def _passed_over(self, held: HeldRun, command: Command) -> Progress:
        """Return the progress over a command that is not run: it was rejected, or its run could not be created."""
        failed = held.run.gradients_failed or command.kind is CommandKind.FORWARD_BACKWARD
        outcome = Outcome.failed("The training run could not be created, or its state was lost.")
        return Progress({command.seq: outcome}, failed)

    async def _clear_gradients(self, run_id: str) -> None:
        if run_id in self._compute.loaded:
            await self._compute.run(lambda trainer: trainer.clear_gradients(run_id))

    async def _record(self, held: HeldRun, progress: Progress) -> None:
        """Record results, and read the run as it is then."""
        try:
            async with self._store.tenant(held.tenant_id, write=True) as scope:
                held.run = await scope.training_lease.record(held.id, held.worker, progress, self._base_model)
        except (LeaseLost, NotFound):
            await self._drop(held.id)
            return
        except (Invalid, Conflict) as error:  # the sampler's number has another one, or a quota is exceeded
            failed = Outcome.failed(error.message)
            outcomes = dict.fromkeys(progress.outcomes, failed)
            await self._record(held, replace(progress, outcomes=outcomes, sampler=None))
            return
        except StoreError:
            await self._drop(held.id)  # what memory holds may be ahead of what is recorded
            raise
        self._wakeups.wake(GATEWAY)
        self._metrics.record_outcomes(progress.outcomes.values())
        self._metrics.record_memory(len(self._compute.loaded), self._compute.used)

    async def _run_renewal_loop(self) -> None:
        """Renew the leases, also while a long step is computed; the next turn drops the runs that are lost or ended."""
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 6)
            try:
                await self._renew()
            except StoreError as error:
                log.warning("leases could not be renewed: %s", error)

    async def _renew(self) -> None:
        by_tenant: defaultdict[str, list[str]] = defaultdict(list)
        for held in self._held.values():
            by_tenant[held.tenant_id].append(held.id)
        for tenant_id, run_ids in by_tenant.items():
            try:
                async with self._store.tenant(tenant_id, write=True) as scope:
                    still = await scope.training_lease.renew(run_ids, self._config.name)
                    ended = [run.id for run in still.values() if run.status is RunStatus.ENDED]
                    await scope.training_lease.release(ended, self._config.name)
            except NotFound:  # the tenant was deleted
                still, ended = {}, run_ids
            self._lost |= {each for each in run_ids if each not in still or each in ended}

    async def _drop_lost(self) -> None:
        while self._lost:
            await self._drop(self._lost.pop())

    async def _unload_idle(self) -> None:
        long_ago = time.monotonic() - _IDLE_SECONDS
        for run_id in [each for each, used in self._used_at.items() if used < long_ago]:
            await self._unload(run_id)

    async def _unload(self, run_id: str) -> bool:
        """Store a run's state, and give the run back."""
        held = self._held.get(run_id)
        if held is not None:
            if not await held.save(self._store, self._compute):
                return False
            async with self._store.tenant(held.tenant_id, write=True) as scope:
                await scope.training_lease.release([run_id], self._config.name)
        await self._drop(run_id)
        return True

    async def _drop(self, run_id: str) -> None:
        """Forget a run that another trainer may hold by now."""
        self._held.pop(run_id, None)
        self._used_at.pop(run_id, None)
        if run_id in self._compute.loaded:
            await self._compute.run(lambda trainer: trainer.unload(run_id))

    async def _release_all(self) -> None:
        async with self._store.admin(write=True) as admin:
            await admin.training_queue.release_all(self._config.name)


def _tokens(request: ForwardBackward) -> int:
    return sum(len(datum.tokens) for datum in request.data)
