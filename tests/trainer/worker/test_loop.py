"""A trainer's loop: the order of commands, what fails with what, recovery to the same bits, turns, memory, usage."""

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
from safetensors.numpy import load

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.training import lease, queue
from loragate.adapter_store.training.objects import (
    CheckpointKind,
    CheckpointPath,
    CommandKind,
    ErrorCategory,
    RequestStatus,
    Sampler,
)
from loragate.adapter_store.usage import training as usage_module
from loragate.adapter_store.usage.query import Grouping, UsageQuery
from loragate.trainer.computation import Computation
from loragate.trainer.worker import held_runs
from tests.trainer.worker.training_world import Client, World, bad_datum, datum

TOKENS = 12


async def train(client: Client, steps: int, *, first: int = 1, seed: int = 0) -> None:
    """Send so many steps, of two requests each, all at once."""
    for step in range(steps):
        seq = first + 3 * step
        await client.forward_backward(seq, datum(seed + step), datum(seed + step + 50))
        await client.forward_backward(seq + 1, datum(seed + step + 100))
        await client.optim_step(seq + 2)


async def state_of(client: Client, seq: int) -> dict[str, bytes]:
    """Return the weights and moments after all commands before `seq`."""
    await client.save(seq, CommandKind.SAVE_STATE, f"at-{seq}")
    outcome = await client.outcome(seq)
    assert outcome.status is RequestStatus.DONE, outcome.error
    async with client.world.store.tenant(client.tenant_id) as scope:
        checkpoint = await scope.training_checkpoints.get(f"tinker://{client.run_id}/weights/at-{seq}")
        assert checkpoint.state_file is not None
        state = load(await scope.training_states.read(checkpoint.state_file))
    return {name: array.tobytes() for name, array in state.items()}


async def bytes_of(client: Client, sampler: Sampler) -> bytes:
    stored = await client.world.store.open_adapter(client.tenant_id, sampler.digest or "")
    return b"".join([chunk async for chunk in stored.tensors])


async def test_commands_run_in_the_order_of_their_numbers(world: World) -> None:
    straight, mixed = await world.client(0), await world.client(1)
    await train(straight, 2)
    await mixed.optim_step(6)
    await mixed.forward_backward(5, datum(101))
    await mixed.forward_backward(2, datum(100))
    await mixed.optim_step(3)
    async with world.training():
        await asyncio.sleep(0.3)
        waiting = await mixed.outcomes(0, 2, 3, 5, 6)
        assert [waiting[seq].status for seq in (0, 2)] == [RequestStatus.DONE, RequestStatus.WAITING]
        await mixed.forward_backward(1, datum(0), datum(50))
        await mixed.forward_backward(4, datum(1), datum(51))
        await mixed.forward_backward(1, datum(0), datum(50))  # again: the same request
        with pytest.raises(Invalid, match="other content"):
            await mixed.forward_backward(1, datum(7))
        assert await mixed.loss(5) == await straight.loss(5)
        assert await state_of(mixed, 7) == await state_of(straight, 7)


async def test_a_gap_holds_back_what_is_behind_it(world: World) -> None:
    client = await world.client()
    await client.forward_backward(1, datum(1))
    await client.forward_backward(3, datum(3))
    async with world.training():
        await client.outcome(1)
        await asyncio.sleep(0.2)
        assert (await client.outcomes(3))[3].status is RequestStatus.WAITING
        await client.forward_backward(2, datum(2))
        await client.loss(2)
        await client.loss(3)


async def test_a_failed_request_takes_its_step_with_it(world: World) -> None:
    client, reference = await world.client(0), await world.client(1)
    await client.forward_backward(1, datum(1))
    await client.forward_backward(2, bad_datum())
    await client.optim_step(3)
    await client.forward_backward(4, datum(2))
    await client.optim_step(5)
    await client.optim_step(6)
    await client.send(7, CommandKind.OPTIM_STEP, b"{}", rejected="no such field")
    await reference.forward_backward(1, datum(2))
    await reference.optim_step(2)
    async with world.training():
        outcomes = {seq: await client.outcome(seq) for seq in range(1, 8)}
        assert [outcomes[seq].status.value for seq in range(1, 8)] == [
            "done",
            "failed",
            "failed",
            "done",
            "done",
            "failed",
            "failed",
        ]
        assert "data[0].loss_fn_inputs.weights" in outcomes[2].error
        assert "forward_backward before" in outcomes[3].error
        assert "no gradient" in outcomes[6].error
        assert {outcomes[seq].category for seq in (2, 3, 6, 7)} == {ErrorCategory.USER}
        assert await state_of(client, 8) == await state_of(reference, 3)


async def test_a_killed_trainer_is_continued_to_the_bit(world: World) -> None:
    """With snapshots and between them; what was done is neither lost nor counted twice."""
    reference, client = await world.client(0), await world.client(1)
    await train(reference, 5)
    async with world.training():
        expected = await state_of(reference, 16)
    await train(client, 5)
    for kill in range(4):
        loop = world.loop(f"t{kill}", snapshot_steps=2)
        task = asyncio.create_task(loop.run())
        await client.outcome(1 + 4 * kill)
        task.cancel()  # anywhere, and without a word to the store
        with suppress(asyncio.CancelledError):
            await task
        world.forget()
    async with world.training("last"):
        assert await state_of(client, 16) == expected
        assert [await client.loss(seq) for seq in (1, 8, 14)] == [await reference.loss(seq) for seq in (1, 8, 14)]
    now, day = utc_now(), timedelta(days=1)
    query = UsageQuery(now - day, now + day, frozenset({Grouping.ENDPOINT}))
    for tenant_id in world.tenants:
        async with world.store.tenant(tenant_id) as scope:
            used = await scope.usage.totals(query)
        assert used.training_tokens == 5 * 3 * TOKENS


async def test_runs_are_stored_and_unloaded_when_memory_is_short(world: World) -> None:
    clients = [await world.client(each % 2, seed=each) for each in range(3)]
    for client in clients:
        await train(client, 1)
    async with world.training():
        expected = [await state_of(client, 4) for client in clients]
    again = [await world.client(each % 2, seed=each) for each in range(3)]
    async with world.training(max_bytes=1):
        for client in again:
            await train(client, 1)
        assert [await state_of(client, 4) for client in again] == expected
        assert len(world.trainer.run_ids) == 1


async def test_samplers_with_and_without_a_name(world: World) -> None:
    client = await world.client()
    await train(client, 1)
    await client.save(4, CommandKind.SAVE_SAMPLER, None, sampler_number=3)
    await client.save(5, CommandKind.SAVE_SAMPLER, "final", sampler_number=None)
    await client.save(6, CommandKind.SAVE_SAMPLER, "final", sampler_number=None)
    await client.save(7, CommandKind.SAVE_EXTERNAL, "files")
    await client.save(12, CommandKind.SAVE_SAMPLER, "000020", sampler_number=None)
    await train(client, 1, first=8)
    await client.save(11, CommandKind.SAVE_SAMPLER, None, sampler_number=3)
    async with world.training():
        assert (await client.outcome(5)).status is RequestStatus.DONE
        assert "final" in (await client.outcome(6)).error
        assert (await client.outcome(7)).status is RequestStatus.DONE
        assert "another sampler" in (await client.outcome(11)).error
        assert (await client.outcome(12)).status is RequestStatus.DONE
    async with world.store.tenant(client.tenant_id) as scope:
        sampler = await scope.training_samplers.get(f"{client.session_id}:sample:3")
        checkpoint = await scope.training_checkpoints.get(f"tinker://{client.run_id}/sampler_weights/final")
        assert checkpoint.adapter is not None
        route = await scope.adapters.route(checkpoint.adapter, alias="final")
        latest, version = (await scope.adapters.versions(checkpoint.adapter)).items
        assert (await scope.adapters.route(checkpoint.adapter, alias="step-000020")).pick().digest == latest.digest
        names = [adapter.name for adapter in (await scope.adapters.list()).items]
    assert sampler.digest == checkpoint.digest == route.pick().digest
    assert version.lineage.source == client.run_id
    assert names == [checkpoint.adapter]  # the unnamed one is no adapter
    assert b"lora_A" in await bytes_of(client, sampler)
    await train(client, 1, first=13)
    await client.save(16, CommandKind.SAVE_SAMPLER, None, sampler_number=4)
    async with world.training():
        await client.outcome(16)
    async with world.store.tenant(client.tenant_id) as scope:
        unnamed = await scope.training_samplers.get(f"{client.session_id}:sample:4")
    await world.store.sweep(timedelta(0), timedelta(0))
    assert b"lora_A" in await bytes_of(client, unnamed)
    async with world.store.tenant(client.tenant_id, write=True) as scope:
        await scope.training_sessions.finish(client.session_id, "success")
        assert await scope.training_samplers.of_session(client.session_id) == []
    await world.store.sweep(timedelta(0), timedelta(0))
    assert b"lora_A" in await bytes_of(client, sampler)  # a version's
    with pytest.raises(LookupError):
        await bytes_of(client, unnamed)


async def test_runs_continue_from_states_and_adapters(world: World) -> None:
    client = await world.client()
    await train(client, 1)
    async with world.training():
        state = await state_of(client, 4)
        other = await world.client()
        path = f"tinker://{client.run_id}/weights/at-4"
        await other.send(1, CommandKind.LOAD, b'{"path": "%s", "optimizer": true}' % path.encode())
        assert (await other.outcome(1)).status is RequestStatus.DONE
        assert await state_of(other, 2) == state
        stranger = await world.client(1)
        await stranger.send(1, CommandKind.LOAD, b'{"path": "%s", "optimizer": true}' % path.encode())
        assert "does not exist" in (await stranger.outcome(1)).error


async def test_a_load_survives_a_crash_and_the_deletion_of_what_it_loaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, client = await world.client(), await world.client()
    await train(source, 1)
    path = CheckpointPath(source.run_id, CheckpointKind.STATE, "at-4")
    reached = asyncio.Event()

    async def never(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    async with world.training():
        state = await state_of(source, 4)
        await client.outcome(0)
        monkeypatch.setattr(held_runs.HeldRuns, "record", never)
        await client.send(1, CommandKind.LOAD, b'{"path": "%s", "optimizer": true}' % str(path).encode())
        await reached.wait()
    monkeypatch.undo()
    async with world.store.tenant(source.tenant_id, write=True) as scope:
        await scope.training_checkpoints.delete(path)
    async with world.training():
        assert (await client.outcome(1)).status is RequestStatus.DONE
    async with world.training():
        assert await state_of(client, 2) == state


async def test_steps_do_not_wait_for_a_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    save_snapshot, begun, storing = lease.TrainingLease.save_snapshot, asyncio.Event(), asyncio.Event()

    async def slow(self: lease.TrainingLease, run_id: str, worker: str, seq: int, state: bytes) -> None:
        begun.set()
        await storing.wait()
        await save_snapshot(self, run_id, worker, seq, state)

    monkeypatch.setattr(lease.TrainingLease, "save_snapshot", slow)
    client = await world.client()
    async with world.training(snapshot_steps=1):
        await train(client, 1)
        await begun.wait()
        await train(client, 3, first=4)
        assert (await client.outcome(12)).status is RequestStatus.DONE
        storing.set()
        expected = await state_of(client, 13)
    async with world.training():
        assert await state_of(client, 14) == expected


async def test_a_gap_that_is_never_filled_fails_what_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await world.client()
    await client.optim_step(3)
    async with world.training():
        await client.outcome(0)
        async with world.store.admin(write=True) as admin:
            assert await admin.training_queue.fail_gaps() == 0
        monkeypatch.setattr(queue, "GAP_PATIENCE", timedelta(0))
        async with world.store.admin(write=True) as admin:
            assert await admin.training_queue.has_gaps()
            assert await admin.training_queue.fail_gaps() == 1
        outcome = await client.outcome(3)
        assert outcome.category is ErrorCategory.USER
        assert "never arrived" in outcome.error
        await client.forward_backward(4, datum(1))
        await client.forward_backward(5, datum(1))
        await client.optim_step(6)
        assert "forward_backward before" in (await client.outcome(6)).error


async def test_a_used_up_limit_fails_the_request(world: World) -> None:
    client = await world.client()
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(client.tenant_id, limits={"training_tokens_per_day": TOKENS})
    await client.forward_backward(1, datum(1))
    await client.forward_backward(2, datum(1))
    async with world.training():
        await client.loss(1)
        failed = await client.outcome(2)
    assert failed.status is RequestStatus.FAILED
    assert "training_tokens_per_day" in failed.error


async def test_runs_wait_for_the_next_minutes_tokens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = await world.client(0), await world.client(1)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(client.tenant_id, limits={"training_tokens_per_minute": TOKENS})
    monkeypatch.setattr(held_runs, "_HELD_BACK_SECONDS", 0.1)
    await client.forward_backward(1, datum(1))
    await client.forward_backward(2, datum(1))
    await other.forward_backward(1, datum(1))
    await other.forward_backward(2, datum(1))
    async with world.training():
        await client.loss(1)
        await other.loss(2)
        await asyncio.sleep(0.3)
        assert (await client.outcomes(2))[2].status is RequestStatus.WAITING
        async with world.store.tenant(client.tenant_id) as scope:
            assert await scope.training_runs.are_rate_limited()
        monkeypatch.setattr(usage_module, "_MINUTE", timedelta(0))
        await client.loss(2)


async def test_a_quiet_tenant_does_not_wait_for_a_busy_one(world: World) -> None:
    first, last = sorted(range(2), key=lambda tenant: world.tenants[tenant])  # whose runs would come first, and last
    busy = [await world.client(first, seed=each) for each in range(3)]
    for client in busy:
        for seq in range(1, 30):
            await client.forward_backward(seq, *(datum(each, 32) for each in range(8)))
    quiet = await world.client(last)
    await quiet.forward_backward(1, datum(1))
    async with world.training(max_step_tokens=64):
        await quiet.loss(1)
        done = [each.status for client in busy for each in (await client.outcomes(*range(1, 30))).values()]
        assert done.count(RequestStatus.DONE) < len(done) / 4


@pytest.mark.long
async def test_a_large_request_gives_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 200 steps of 64 rows; what comes after it began does not wait for its end."""
    large, small = await world.client(0), await world.client(1)
    await large.forward_backward(1, *(datum(each, 32) for each in range(400)))
    really = Computation.advance
    monkeypatch.setattr(Computation, "advance", lambda computation: (time.sleep(0.02), really(computation))[1])
    async with world.training():
        await large.outcome(0)
        await small.forward_backward(1, datum(1))
        await small.optim_step(2)
        await small.outcome(2)
        assert (await large.outcomes(1))[1].status is RequestStatus.WAITING
        monkeypatch.undo()
        await large.loss(1)


async def test_short_commands_run_beside_a_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = await world.client(0), await world.client(1)
    began, may_end, really = threading.Event(), threading.Event(), Computation.advance

    def advance(computation: Computation) -> None:
        if computation.next_step is not None and slow.run_id in computation.next_step.tokens:
            began.set()
            assert may_end.wait(30)
        really(computation)

    async with world.training():
        await quick.forward_backward(1, datum(1))
        await quick.loss(1)
        monkeypatch.setattr(Computation, "advance", advance)
        await slow.forward_backward(1, datum(1))
        await asyncio.to_thread(began.wait)
        await quick.optim_step(2)
        await quick.save(3, CommandKind.SAVE_SAMPLER, "beside", sampler_number=None)
        late = await world.client(1)
        assert (await quick.outcome(3)).status is RequestStatus.DONE
        assert (await late.outcome(0)).status is RequestStatus.DONE
        assert (await slow.outcomes(1))[1].status is RequestStatus.WAITING
        may_end.set()
        await slow.loss(1)


async def test_a_trainer_that_lost_its_lease_records_nothing(world: World) -> None:
    client = await world.client()
    await client.forward_backward(1, datum(1))
    loop = world.loop("slow")
    await loop._turn()  # claims the run, and creates it
    waiting = await loop._runs.read_waiting(frozenset())
    async with world.store.admin(write=True) as admin:
        await admin.training_queue.release_all("slow")
        assert [claim.run.id for claim in await admin.training_queue.claim("other", 8)] == [client.run_id]
    await loop._next(loop._runs[client.run_id], waiting)
    assert loop._step is not None
    await loop._step
    assert (await client.outcomes(1))[1].status is RequestStatus.WAITING
    assert world.trainer.run_ids == ()


async def test_a_run_that_cannot_be_created_fails_what_follows(world: World) -> None:
    client, other = await world.client(0, rank=1000), await world.client(1)
    await client.forward_backward(1, datum(1))
    await other.forward_backward(1, datum(1))
    async with world.training():
        assert "rank" in (await client.outcome(0)).error
        assert "could not be created" in (await client.outcome(1)).error
        await other.loss(1)


async def test_leases_are_renewed_while_a_step_is_computed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", timedelta(seconds=1))
    monkeypatch.setattr(queue, "LEASE", timedelta(seconds=1))
    monkeypatch.setattr(held_runs, "LEASE", timedelta(seconds=1))
    really = Computation.advance
    monkeypatch.setattr(Computation, "advance", lambda computation: (time.sleep(1), really(computation))[1])
    client = await world.client()
    await client.forward_backward(1, datum(1))
    async with world.training():
        await client.loss(1)
        async with world.store.tenant(client.tenant_id) as scope:
            assert (await scope.training_runs.get(client.run_id)).trained_tokens == TOKENS
