"""Snapshots of runs: the states that a trainer continues from after a crash."""

import asyncio
import logging
from dataclasses import replace

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.held_run import HeldRun

log = logging.getLogger(__name__)


class Snapshots:
    """Takes snapshots of held runs. A run's states are stored one after the other, in the order of its commands."""

    def __init__(self, store: Store, compute: Compute) -> None:
        self._store = store
        self._compute = compute
        self._storing: dict[str, asyncio.Task[None]] = {}  # by run

    async def begin(self, held: HeldRun) -> None:
        """Take a snapshot after the last command and store it in the background, unless one is being stored."""
        if held.id in self._storing or not self._is_needed(held):
            return
        seq, state = held.run.next_seq - 1, await self._state(held)
        storing = asyncio.create_task(self._store_in_background(held, seq, state), name=f"snapshot {held.id}")
        self._storing[held.id] = storing
        storing.add_done_callback(lambda _: self._storing.pop(held.id))

    async def save(self, held: HeldRun) -> bool:
        """Take a snapshot after the last command; return whether it is stored."""
        await self._wait(held)
        if not self._is_needed(held):
            return True
        try:
            await self.save_after(held, held.run.next_seq - 1)
        except StoreError as error:
            _warn(held, error)
            return False
        return True

    async def save_after(self, held: HeldRun, seq: int) -> None:
        """Take a snapshot of what memory holds, which is the state after the command `seq`. Raise StoreError."""
        await self._wait(held)
        await self._put(held, seq, await self._state(held))

    async def close(self) -> None:
        """Wait for what is being stored."""
        if self._storing:
            await asyncio.wait(self._storing.values())

    def _is_needed(self, held: HeldRun) -> bool:
        return held.id in self._compute.loaded and held.run.snapshot_seq != held.run.next_seq - 1

    async def _state(self, held: HeldRun) -> bytes:
        state = await self._compute.run(lambda trainer: trainer.state(held.id))
        held.steps_since_snapshot = 0
        return state

    async def _wait(self, held: HeldRun) -> None:
        while held.id in self._storing:
            await asyncio.wait([self._storing[held.id]])

    async def _store_in_background(self, held: HeldRun, seq: int, state: bytes) -> None:
        try:
            await self._put(held, seq, state)
        except StoreError as error:
            _warn(held, error)

    async def _put(self, held: HeldRun, seq: int, state: bytes) -> None:
        async with self._store.tenant(held.tenant_id, write=True) as scope:
            await scope.training_lease.save_snapshot(held.id, held.worker, seq, state)
        held.run = replace(held.run, snapshot_seq=seq)


def _warn(held: HeldRun, error: StoreError) -> None:
    log.warning("training run %s: no snapshot: %s", held.id, error)
