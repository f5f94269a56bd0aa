"""Fine-tuning jobs on both databases: which is next, which worker has it, and what happens when a worker dies."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.errors import Conflict, Failure, Invalid, NotFound
from loragate.adapter_store.jobs.job import JobRequest, JobStart, JobStatus, Order
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.jobs.queue import MAX_ATTEMPTS, JobClaim
from loragate.adapter_store.tables.jobs import JobEventRow, JobRow

REQUEST = JobRequest(
    method="supervised",
    model="tiny/base",
    training_file="file-1",
    validation_file=None,
    hyperparameters={"n_epochs": 2},
    suffix="poet",
    seed=7,
    metadata={"team": "a"},
)
RECIPE = {"epochs": 2}
VALIDATING, QUEUED = JobStatus.VALIDATING, JobStatus.QUEUED


async def as_tenant(world: Any, method: str, *arguments: Any, tenant: Any = None, **named: Any) -> Any:
    """Run an operation of the tenant."""
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.jobs, method)(*arguments, **named)


async def as_worker(world: Any, method: str, *arguments: Any, tenant: Any = None, **named: Any) -> Any:
    """Run an operation of the worker."""
    async with world.store.tenant((tenant or world.acme).id, write=True) as scope:
        return await getattr(scope.job_lease, method)(*arguments, **named)


async def claimed(world: Any, stage: JobStatus = QUEUED, worker: str = "w1", most: int = 1) -> JobClaim | None:
    async with world.store.admin() as admin:
        waits = await admin.job_queue.waits(stage, most)
    found = await claimed_without_a_look(world, stage, worker, most)
    assert waits == (found is not None)
    return found


async def claimed_without_a_look(world: Any, stage: JobStatus, worker: str, most: int) -> JobClaim | None:
    async with world.store.admin(write=True) as admin:
        found: JobClaim | None = await admin.job_queue.claim(worker, stage, most)
        return found


async def queued(world: Any, tenant: Any = None) -> str:
    """Create a job whose files were validated."""
    job = await as_tenant(world, "create", REQUEST, tenant=tenant)
    claim = await claimed(world, VALIDATING)
    assert claim is not None
    assert claim.job.id == job.id
    await as_worker(world, "validated", job.id, "w1", RECIPE, 1000, tenant=tenant)
    found: str = job.id
    return found


async def limited(world: Any, **limits: int | None) -> None:
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(world.acme.id, limits=limits)


async def expire_lease(world: Any, job_id: str) -> None:
    """Make the job's lease look as if its worker had died a while ago."""
    async with world.store.admin(write=True) as admin:
        gone = update(JobRow).where(JobRow.id == job_id)
        now = await admin.job_queue._session.scalar(database_now().select())
        await admin.job_queue._session.execute(gone.values(held_until=now - timedelta(seconds=1)))


async def test_a_jobs_life(world: Any) -> None:
    made = await as_tenant(world, "create", REQUEST)
    assert made.id.startswith("ftjob-")
    assert (made.status, made.request, made.recipe) == (VALIDATING, REQUEST, None)
    assert (await claimed(world, VALIDATING)) is not None
    await as_worker(world, "validated", made.id, "w1", RECIPE, 1000)
    assert (await as_tenant(world, "get", made.id)).status is QUEUED
    claim = await claimed(world)
    assert claim is not None
    assert (claim.job.status, claim.job.recipe, claim.died) == (JobStatus.RUNNING, RECIPE, False)
    assert await as_worker(world, "renew", made.id, "w1") is None
    await as_worker(world, "progress", made.id, "w1", 3, 12)
    await as_worker(world, "checkpoint", made.id, "w1", 3, {"loss": 1.5}, None)
    await as_worker(world, "checkpoint", made.id, "w1", 3, {"loss": 1.5}, "ft:x:ckpt-step-3")
    await as_worker(world, "succeed", made.id, "w1", "ft:tiny:acme:poet:1", "file-2")
    done = await as_tenant(world, "get", made.id)
    assert (done.status, done.fine_tuned_model, done.result_file) == (
        JobStatus.SUCCEEDED,
        "ft:tiny:acme:poet:1",
        "file-2",
    )
    assert (done.step, done.steps, done.trained_tokens) == (3, 12, 1000)
    assert done.created_at <= done.started_at <= done.finished_at
    (checkpoint,) = await as_tenant(world, "checkpoints", made.id)
    assert (checkpoint.step, checkpoint.metrics, checkpoint.model) == (3, {"loss": 1.5}, "ft:x:ckpt-step-3")
    assert await claimed(world) is None


async def test_events_are_listed_newest_first_in_pages(world: Any) -> None:
    job = await as_tenant(world, "create", REQUEST)
    for number in range(5):
        await as_worker(world, "log_event", job.id, f"event {number}", type="metrics", data={"step": number})
    first = await as_tenant(world, "events", job.id, limit=3)
    rest = await as_tenant(world, "events", job.id, after=first.items[-1].number, limit=3)
    assert [event.message for event in (*first, *rest)] == [f"event {number}" for number in (4, 3, 2, 1, 0)]
    assert (first.has_more, rest.has_more) == (True, False)
    assert first.items[0].data == {"step": 4}


async def test_another_tenants_job_is_not_found(world: Any) -> None:
    job = await as_tenant(world, "create", REQUEST)
    for method in ("get", "cancel", "pause", "resume", "events", "checkpoints"):
        with pytest.raises(NotFound):
            await as_tenant(world, method, job.id, tenant=world.other)
    assert not (await as_tenant(world, "list", tenant=world.other)).items
    assert [found.id for found in await as_tenant(world, "list")] == [job.id]


async def test_the_tenant_with_the_fewest_running_jobs_is_next_then_the_longest_waiting(world: Any) -> None:
    ours = [await queued(world) for _ in range(3)]
    theirs = [await queued(world, world.other) for _ in range(2)]
    order = [await claimed(world, most=9) for _ in range(5)]
    assert [claim.job.id for claim in order if claim] == [ours[0], theirs[0], ours[1], theirs[1], ours[2]]


@pytest.mark.parametrize("valid", [True, False])
async def test_tenants_take_turns_at_validation(world: Any, valid: bool) -> None:
    """Also a tenant that never trained, because its files are invalid or its jobs still wait."""
    theirs = [(await as_tenant(world, "create", REQUEST, tenant=world.other)).id for _ in range(3)]
    ours = (await as_tenant(world, "create", REQUEST)).id
    order = []
    for _ in range(3):
        claim = await claimed(world, VALIDATING)
        assert claim is not None
        tenant = world.acme if claim.tenant_id == world.acme.id else world.other
        if valid:
            await as_worker(world, "validated", claim.job.id, "w1", RECIPE, 1000, tenant=tenant)
        else:
            await as_worker(world, "fail", claim.job.id, "w1", Failure("x", "y"), tenant=tenant)
        order.append(claim.job.id)
    assert order == [theirs[0], ours, theirs[1]]


async def test_a_tenant_whose_file_is_being_validated_is_not_next(world: Any) -> None:
    theirs = [(await as_tenant(world, "create", REQUEST, tenant=world.other)).id for _ in range(2)]
    ours = (await as_tenant(world, "create", REQUEST)).id
    claims = [await claimed(world, VALIDATING, worker) for worker in ("w1", "w2", "w3")]
    assert [claim.job.id for claim in claims if claim] == [theirs[0], ours, theirs[1]]


async def test_a_tenant_trains_at_most_its_share_of_jobs(world: Any) -> None:
    first, second = await queued(world), await queued(world)
    assert (await claimed(world)) is not None
    assert await claimed(world) is None
    assert await claimed(world, most=2) is not None
    await as_worker(world, "fail", first, "w1", Failure("x", "y"))
    assert (await as_tenant(world, "get", second)).status is JobStatus.RUNNING
    assert (await as_tenant(world, "get", first)).error == Failure("x", "y")


async def test_concurrent_claims_get_different_jobs(world: Any) -> None:
    jobs = {await queued(world) for _ in range(3)} | {await queued(world, world.other) for _ in range(3)}
    claims = await asyncio.gather(*(claimed_without_a_look(world, QUEUED, f"w{n}", 2) for n in range(8)))
    got = [claim for claim in claims if claim]
    assert len({claim.job.id for claim in got}) == len(got)
    assert {claim.job.id for claim in got} <= jobs
    assert max(Counter(claim.tenant_id for claim in got).values()) == 2


async def test_the_job_of_a_dead_worker_is_reassigned_and_its_writes_are_rejected(world: Any) -> None:
    job = await queued(world)
    await claimed(world)
    assert await claimed(world, worker="w2") is None
    await expire_lease(world, job)
    claim = await claimed(world, worker="w2")
    assert claim is not None
    assert (claim.job.id, claim.died, claim.hopeless) == (job, True, False)
    for method, arguments in (
        ("renew", ()),
        ("progress", (1, 2)),
        ("checkpoint", (1, {}, None)),
        ("pause", ()),
        ("requeue", ()),
        ("step_aside", ()),
        ("record_trained_tokens", (7,)),
        ("succeed", ("m", None)),
        ("fail", (Failure("a", "b"),)),
        ("cancelled", ()),
        ("validated", ({}, 1)),
    ):
        with pytest.raises(LeaseLost):
            await as_worker(world, method, job, "w1", *arguments)
    await as_worker(world, "progress", job, "w2", 1, 2)


async def test_a_new_worker_releases_the_jobs_of_a_dead_one_with_its_name(world: Any) -> None:
    job = await queued(world)
    others = await queued(world, tenant=world.other)
    for worker in ("w1", "w2"):
        assert await claimed(world, worker=worker) is not None
    assert await claimed(world, worker="w1") is None
    async with world.store.admin(write=True) as admin:
        await admin.job_queue.release_all("w1")
    claim = await claimed(world, worker="w1")
    assert claim is not None
    assert claim.died
    assert {claim.job.id} < {job, others}
    assert await claimed(world, worker="w3") is None, "what w2 holds is w2's"


async def test_a_job_that_kills_its_workers_fails_unless_it_makes_progress(world: Any) -> None:
    job = await queued(world)
    found: list[bool] = []
    for _ in range(MAX_ATTEMPTS + 1):
        claim = await claimed(world)
        assert claim is not None
        found.append(claim.hopeless)
        await expire_lease(world, job)
    assert found == [False] * MAX_ATTEMPTS + [True]
    await claimed(world)
    await as_worker(world, "progress", job, "w1", 1, 2)
    await expire_lease(world, job)
    claim = await claimed(world)
    assert claim is not None
    assert not claim.hopeless


async def test_an_idle_job_is_cancelled_and_paused_at_once(world: Any) -> None:
    waiting, silent, new = await queued(world), await queued(world), await as_tenant(world, "create", REQUEST)
    assert (await as_tenant(world, "cancel", new.id)).status is JobStatus.CANCELLED
    assert (await as_tenant(world, "cancel", new.id)).status is JobStatus.CANCELLED
    assert (await as_tenant(world, "pause", waiting)).status is JobStatus.PAUSED
    await claimed(world)
    await expire_lease(world, silent)
    assert (await as_tenant(world, "cancel", silent)).status is JobStatus.CANCELLED
    assert (await as_tenant(world, "get", silent)).finished_at is not None
    assert await claimed(world) is None
    assert (await as_tenant(world, "resume", waiting)).status is QUEUED
    for method in ("pause", "resume"):
        with pytest.raises(Conflict, match="cancelled"):
            await as_tenant(world, method, new.id)


@pytest.mark.parametrize("order", list(Order))
async def test_a_worker_learns_of_its_tenants_requests(world: Any, order: Order) -> None:
    job = await queued(world)
    await claimed(world)
    assert (await as_tenant(world, order, job)).status is JobStatus.RUNNING
    assert await as_worker(world, "renew", job, "w1") is order
    await as_worker(world, "cancelled" if order is Order.CANCEL else "pause", job, "w1")
    found = await as_tenant(world, "get", job)
    assert found.status is (JobStatus.CANCELLED if order is Order.CANCEL else JobStatus.PAUSED)
    if order is Order.PAUSE:
        await as_tenant(world, "resume", job)
        assert (await claimed(world)) is not None
        assert await as_worker(world, "renew", job, "w1") is None


async def test_cancelling_outweighs_pausing(world: Any) -> None:
    job = await queued(world)
    await claimed(world)
    for order in (Order.PAUSE, Order.CANCEL, Order.PAUSE):
        await as_tenant(world, order, job)
    assert await as_worker(world, "renew", job, "w1") is Order.CANCEL


async def test_a_stopping_worker_requeues_its_job(world: Any) -> None:
    new = await as_tenant(world, "create", REQUEST)
    await claimed(world, VALIDATING)
    await as_worker(world, "requeue", new.id, "w1")
    assert (await as_tenant(world, "get", new.id)).status is VALIDATING
    await claimed(world, VALIDATING)
    await as_worker(world, "validated", new.id, "w1", RECIPE, 1)
    await claimed(world)
    await as_worker(world, "requeue", new.id, "w1")
    assert (await as_tenant(world, "get", new.id)).status is QUEUED
    claim = await claimed(world, worker="w2")
    assert claim is not None
    assert not claim.died


async def test_a_requeued_waiting_job_is_last_in_line(world: Any) -> None:
    waiting = await queued(world)
    assert (claim := await claimed(world))
    assert claim.job.id == waiting
    own, others = await queued(world), await queued(world, world.other)
    await as_worker(world, "step_aside", waiting, "w1")
    turns = [await claimed(world, worker=f"w{number}", most=3) for number in range(3)]
    assert [turn and (turn.job.id, turn.died) for turn in turns] == [(others, False), (own, False), (waiting, False)]


async def test_jobs_of_a_tenant_are_limited_unless_set_to_unlimited(world: Any) -> None:
    await limited(world, max_unfinished_jobs=2)
    first = await as_tenant(world, "create", REQUEST)
    await as_tenant(world, "create", replace(REQUEST, method="dpo"))
    with pytest.raises(Conflict, match="max_unfinished_jobs") as rejected:
        await as_tenant(world, "create", REQUEST)
    assert rejected.value.code == "too_many_jobs"
    await as_tenant(world, "cancel", first.id)
    await as_tenant(world, "create", REQUEST)
    await limited(world, max_unfinished_jobs=None)
    for _ in range(33):
        await as_tenant(world, "create", REQUEST)


async def test_all_actions_of_the_tenant_are_in_the_audit_log(world: Any) -> None:
    job = await queued(world)
    for method in ("pause", "resume", "cancel"):
        await as_tenant(world, method, job)
    async with world.store.admin() as admin:
        acts = [event.action for event in await admin.audit.list(limit=100) if event.target.endswith(job)]
        waiting = await admin.job_queue.waiting()
    assert acts == [f"fine_tuning_job.{act}" for act in ("cancel", "resume", "pause", "create")]
    assert waiting == {}


async def test_a_job_keeps_its_starting_point(world: Any) -> None:
    start = JobStart("ad_1", "poet", 3, "sha256:" + "a" * 64)
    job = await as_tenant(world, "create", replace(REQUEST, model="poet@canary", start=start))
    assert (await as_tenant(world, "get", job.id)).request.start == start
    claim = await claimed(world, VALIDATING)
    assert claim is not None
    assert claim.job.request.start == start


async def test_jobs_are_found_by_metadata(world: Any) -> None:
    written: list[dict[str, str]] = [
        {},
        {"team": "a", "note": ""},
        {"team": "b"},
        {'qu"ote': "a\\b", "$.team": "a"},
        {"0": 'ü, ":" ü'},
    ]
    ids = [(await as_tenant(world, "create", replace(REQUEST, metadata=labels))).id for labels in written]

    async def found(labels: Any, **page: Any) -> list[int]:
        return [ids.index(job.id) for job in await as_tenant(world, "list", labels, **page)]

    assert await found({}) == [4, 3, 2, 1, 0]
    assert await found(None) == [0]
    for number, labels in enumerate(written[1:], 1):
        assert await found(labels) == [number]
        for name, value in labels.items():
            assert await found({name: value}) == [number]
            assert await found({name: f"{value}x"}) == await found({f"{name}x": value}) == []
    assert await found({"note": ""}) == [1]
    assert await found({"team": "a", "note": "x"}) == []
    assert await found({}, after=ids[2], limit=1) == [1]


async def test_a_follower_continues_after_the_last_event_it_has_seen(world: Any) -> None:
    job = await as_tenant(world, "create", REQUEST)
    for number in range(5):
        await as_worker(world, "log_event", job.id, f"event {number}")
    first = await as_tenant(world, "events_since", job.id, 0, limit=2)
    rest = await as_tenant(world, "events_since", job.id, first.items[-1].number)
    assert [event.message for event in (*first, *rest)] == [f"event {number}" for number in range(5)]
    assert (first.has_more, rest.has_more) == (True, False)
    with pytest.raises(NotFound):
        await as_tenant(world, "events_since", job.id, 0, tenant=world.other)


async def test_results_of_jobs(world: Any) -> None:
    job_id = await queued(world)
    assert await claimed(world) is not None
    await as_worker(world, "checkpoint", job_id, "w1", 3, {}, "ft:b:acme:poet:12345678:ckpt-step-3")
    assert await as_tenant(world, "models") == []
    await as_worker(world, "succeed", job_id, "w1", "ft:b:acme:poet:12345678", None)
    (made,) = await as_tenant(world, "models")
    assert made.model == "ft:b:acme:poet:12345678"
    assert made.made_at == (await as_tenant(world, "get", job_id)).finished_at
    for model in (made.model, f"{made.model}:ckpt-step-3"):
        assert await as_tenant(world, "has_made", model)
        assert not await as_tenant(world, "has_made", model, tenant=world.other)
    for model in ("ft:b:acme:poet", f"{made.model}:ckpt-step-4", "ft:b:other:poet:12345678"):
        assert not await as_tenant(world, "has_made", model)


async def test_the_operator_sees_all_jobs_and_an_administrator_its_tenants(world: Any) -> None:
    ours = [(await as_tenant(world, "create", REQUEST)).id for _ in range(2)]
    theirs = (await as_tenant(world, "create", REQUEST, tenant=world.other)).id
    await as_tenant(world, "cancel", ours[0])

    async def found(within: str | None = None, **wanted: Any) -> list[str]:
        async with world.store.admin(within=within) as admin:
            return [each.job.id for each in await admin.jobs.list(**wanted)]

    acme = world.acme.id
    assert await found() == [theirs, *ours[::-1]]
    assert await found(limit=1, after=theirs) == [ours[1]]
    assert await found(tenant_id=acme) == await found(acme) == ours[::-1]
    assert await found(status=JobStatus.CANCELLED) == [ours[0]]
    assert await found(tenant_id=world.other.id, status=JobStatus.CANCELLED) == []
    assert await found(acme, tenant_id=world.other.id) == await found(tenant_id="no'body") == []
    async with world.store.admin() as admin:
        assert (await admin.jobs.get(theirs)).tenant_id == world.other.id
        for job_id in ("ftjob-none", "no'job"):
            with pytest.raises(NotFound):
                await admin.jobs.get(job_id)
    async with world.store.admin(within=acme) as admin:
        assert (await admin.jobs.get(ours[0])).tenant_id == acme
        with pytest.raises(NotFound):
            await admin.jobs.get(theirs)
        with pytest.raises(Invalid):
            await admin.jobs.list(after=theirs)


async def test_a_tenants_limits_are_checked_before_the_work(world: Any) -> None:
    await world.publish("poet")
    for limits, name in (({"max_adapters": 1}, "max_adapters"), ({"max_storage_bytes": 1}, "max_storage_bytes")):
        await limited(world, **{"max_adapters": None, "max_storage_bytes": None, **limits})
        with pytest.raises(Conflict, match=name) as rejected:
            await as_tenant(world, "create", REQUEST)
        assert rejected.value.code == "quota_exceeded"
    await limited(world, max_adapters=2, max_storage_bytes=None)
    await as_tenant(world, "create", REQUEST)


async def test_a_deleted_tenants_jobs_are_cancelled(world: Any) -> None:
    ids = [await queued(world) for _ in range(2)]
    done = await queued(world)
    for _ in ids:
        assert await claimed(world, most=9) is not None
    await as_tenant(world, "cancel", done)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(world.acme.id)
    with pytest.raises(NotFound):
        await as_worker(world, "renew", ids[0], "w1")
    assert await claimed(world, most=9) is None
    async with world.store.admin() as admin:
        page = await admin.jobs.list(tenant_id=world.acme.id)
    assert {each.job.status for each in page} == {JobStatus.CANCELLED}
    assert all(each.job.finished_at for each in page)


async def test_events_of_jobs_that_ended_long_ago_are_removed(world: Any) -> None:
    old, young = [await as_tenant(world, "create", REQUEST) for _ in range(2)]
    for job in (old, young):
        await as_tenant(world, "cancel", job.id)
        await as_worker(world, "log_event", job.id, "one more")
    async with world.store.admin(write=True) as admin:
        now = await admin.jobs._session.scalar(database_now().select())
        ended = update(JobRow).where(JobRow.id == old.id).values(finished_at=now - timedelta(days=2))
        await admin.jobs._session.execute(ended)
        count = len(await asked_in(admin, old.id))
        assert await admin.jobs.purge_events(now - timedelta(days=1), 1) == 1
        assert await admin.jobs.purge_events(now - timedelta(days=1), 100) == count - 1
    assert not (await as_tenant(world, "events", old.id)).items
    assert (await as_tenant(world, "events", young.id)).items
    assert (await as_tenant(world, "get", old.id)).status is JobStatus.CANCELLED


async def asked_in(admin: Any, job_id: str) -> Any:
    return (await admin.jobs._session.scalars(select(JobEventRow).where(JobEventRow.job_id == job_id))).all()
