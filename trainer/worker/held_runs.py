"""The runs that a trainer holds: their leases, what they wait for, their place in memory, and their records."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from loragate.adapter_store.errors import Conflict, Invalid, NotFound, StoreError
from loragate.adapter_store.jobs.lease import LEASE, LeaseLost
from loragate.adapter_store.notices.wakeups import GATEWAY, Wakeups
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.lease import Progress
from loragate.adapter_store.training.objects import Command, CommandKind, ErrorCategory, Outcome, RunStatus
from loragate.adapter_store.training.queue import WaitingRuns
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.held_run import HeldRun, lora_settings
from loragate.trainer.worker.metrics import TrainerMetrics
from loragate.trainer.worker.requests import document
from loragate.trainer.worker.snapshots import Snapshots

log = logging.getLogger(__name__)

_CLAIMED = 64  # runs at a time
_LOOKED_AT = 32  # commands of a run at a time
_HELD_BACK_SECONDS = 1.0
_IDLE_SECONDS = 300.0  # a run without commands for so long is unloaded

Waiting = Mapping[str, Sequence[Command]]
"""The commands that can be run, by run."""


class HeldRuns:
    """The runs whose leases this trainer has. `busy` are those that a computation has, which stay in memory."""

    def __init__(
        self,
        store: Store,
        compute: Compute,
        snapshots: Snapshots,
        config: TrainerConfig,
        wakeups: Wakeups,
        base_model: str,
        metrics: TrainerMetrics,
    ) -> None:
        self._store = store
        self._compute = compute
        self._snapshots = snapshots
        self._config = config
        self._wakeups = wakeups
        self._base_model = base_model
        self._metrics = metrics
        self._held: dict[str, HeldRun] = {}
        self._served: defaultdict[str, float] = defaultdict(float)  # by tenant
        self._used_at: dict[str, float] = {}
        self._lost: set[str] = set()  # runs that this trainer holds no longer

    def __getitem__(self, run_id: str) -> HeldRun:
        return self._held[run_id]

    def holds(self, held: HeldRun) -> bool:
        """Return whether a run has been held without a pause since `held` was."""
        return self._held.get(held.id) is held

    def served(self, held: HeldRun) -> float:
        """Return what its tenant was given, by the tenant's weight: who has least comes first."""
        return self._served[held.tenant_id]

    def serve(self, held: HeldRun, cost: float) -> None:
        """Count what was done for a run, in tokens of a forward pass."""
        self._served[held.tenant_id] += cost / held.weight

    async def read_waiting(self, busy: Collection[str]) -> Waiting:
        """Claim what waits for a trainer; return the next commands of the runs that are not busy."""
        found = await self._read()
        if found.others:
            await self._claim()
            found = await self._read()
        waiting = {}
        for each in found.held:
            held = self._held.get(each.run.id)
            if held is None or held.tenant_id != each.tenant_id or held.id in busy:
                continue
            if time.monotonic() >= held.held_back_until:
                held.run = each.run  # a gap or an operator may have changed it
                waiting[held.id] = each.commands
                self._used_at[held.id] = time.monotonic()
        return waiting

    async def load(self, held: HeldRun, waiting: Waiting, busy: Collection[str]) -> bool:
        """Bring a run into memory as it is; return whether its next command can be run."""
        if not await self._make_room(self._needed(held, waiting[held.id][0]), {*waiting, *busy}, busy):
            return False
        try:
            await held.load(self._store, self._compute)
        except LookupError as error:
            log.error("training run %s cannot be continued: %s", held.id, error)
            words = "The state of this training run was lost; continue from its last checkpoint."
            outcomes = {waiting[held.id][0].seq: Outcome.failed(words, ErrorCategory.SERVER)}
            await self.record(held, Progress(outcomes, gradients_failed=False, failed=True))
            return False
        return True

    async def record(self, held: HeldRun, progress: Progress) -> None:
        """Record results, and read the run as it is then."""
        try:
            async with self._store.tenant(held.tenant_id, write=True) as scope:
                held.run = await scope.training_lease.record(held.id, held.worker, progress, self._base_model)
        except (LeaseLost, NotFound):
            self.forget(held)
            return
        except (Invalid, Conflict) as error:  # the sampler's number has another one, or a quota is exceeded
            failed = Outcome.failed(error.message)
            outcomes = dict.fromkeys(progress.outcomes, failed)
            await self.record(held, replace(progress, outcomes=outcomes, sampler=None))
            return
        except StoreError:
            self.forget(held)  # what memory holds may be ahead of what is recorded
            raise
        self._wakeups.wake(GATEWAY)
        self._metrics.record_outcomes(progress.outcomes.values())
        self._metrics.record_memory(len(self._compute.loaded), self._compute.used)

    async def run_renewal_loop(self) -> None:
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

    def drop_lost(self, busy: Collection[str]) -> None:
        """Forget the runs that were lost or have ended; busy ones stay until their computation has ended."""
        for run_id in self._lost.difference(busy):
            self._lost.discard(run_id)
            self._drop(run_id)

    async def unload_idle(self, busy: Collection[str]) -> None:
        """Unload what had no commands for long."""
        long_ago = time.monotonic() - _IDLE_SECONDS
        for run_id in [each for each, used in self._used_at.items() if used < long_ago and each not in busy]:
            await self._unload(run_id)

    def hold_back(self, held: HeldRun) -> None:
        """Let a run wait: its tenant has no tokens left in this minute."""
        held.held_back_until = time.monotonic() + _HELD_BACK_SECONDS

    def forget(self, held: HeldRun) -> None:
        """Forget a run that another trainer may hold by now."""
        if self.holds(held):
            self._drop(held.id)

    async def release_all(self) -> None:
        """Give all runs back."""
        async with self._store.admin(write=True) as admin:
            await admin.training_queue.release_all(self._config.name)

    async def _read(self) -> WaitingRuns:
        async with self._store.admin() as admin:
            return await admin.training_queue.waiting(self._config.name, _LOOKED_AT)

    async def _claim(self) -> None:
        async with self._store.admin(write=True) as admin:
            claims = await admin.training_queue.claim(self._config.name, _CLAIMED)
        for claim in claims:
            self._drop(claim.run.id)  # what this trainer lost may be in memory still
            self._held[claim.run.id] = HeldRun(claim.tenant_id, claim.weight, claim.run, self._config.name)
            least = min((self._served[each.tenant_id] for each in self._held.values()), default=0.0)
            self._served[claim.tenant_id] = max(self._served[claim.tenant_id], least)
            self._used_at[claim.run.id] = time.monotonic()

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

    async def _make_room(self, needed: int, wanted: Collection[str], busy: Collection[str]) -> bool:
        """Unload runs, those first that were not used for longest, until there is room for a run."""
        while not self._compute.has_room(needed):
            loaded = [each for each in self._compute.loaded if each not in busy]
            idle = [each for each in loaded if each not in wanted] or loaded
            if not idle:
                return not busy  # a run that is larger than the memory set aside is alone
            if not await self._unload(min(idle, key=lambda each: self._used_at.get(each, 0.0))):
                return False
        return True

    async def _unload(self, run_id: str) -> bool:
        """Store a run's state, and give the run back."""
        held = self._held.get(run_id)
        if held is not None:
            if not await self._snapshots.save(held):
                return False
            async with self._store.tenant(held.tenant_id, write=True) as scope:
                await scope.training_lease.release([run_id], self._config.name)
        self._drop(run_id)
        return True

    def _drop(self, run_id: str) -> None:
        self._held.pop(run_id, None)
        self._used_at.pop(run_id, None)
        if run_id in self._compute.loaded:
            self._compute.trainer.unload(run_id)
