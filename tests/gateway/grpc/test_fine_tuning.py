"""FineTuningService over real gRPC: the same as REST, with events as they occur."""

import asyncio
from typing import Any

import grpc
import pytest

from loragate.v1 import fine_tuning_pb2 as pb
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.grpc.test_adapters import bare
from tests.gateway.grpc.test_inference import as_rest
from tests.gateway.grpc_client import Client, connected, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

JOBS = "/v1/fine_tuning/jobs"


@pytest.fixture
async def file(gateway: Gateway) -> str:
    async with gateway.http() as http:
        made = await http.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", b"{}")})
        return str(made.json()["id"])


def asking(**fields: Any) -> pb.CreateFineTuningJobRequest:
    return pb.CreateFineTuningJobRequest(**{"model": MODEL_ID, **fields})


async def ask(client: Client, method: str, request: Any, *more: tuple[str, str]) -> Any:
    return await getattr(client.fine_tuning, method)(request, metadata=(*client.metadata, *more))


async def test_the_response_equals_that_of_rest(gateway: Gateway, client: Client, file: str, upload: Any) -> None:
    worker = FakeWorker(gateway)
    hyperparameters = {"n_epochs": 2, "lora_dropout": 0.25, "target_modules": ["all-linear"], "packing": False}
    method = {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}}
    first = await ask(client, "Create", asking(training_file=file, method=method, suffix="poet", metadata={"t": "a"}))
    second = await ask(client, "Create", asking(training_file=file, method={"type": "dpo"}, seed=7))
    assert (first.status, second.seed, second.method.type) == ("validating_files", 7, "dpo")
    assert first.method.supervised.hyperparameters.lora_dropout == 0.25
    assert not first.hyperparameters.HasField("batch_size"), "still open"
    await worker.validate()
    job = await worker.train()
    await worker.run("checkpoint", job.id, 2, {"train_loss": 1.5}, None)
    await worker.succeed(job, upload)
    one = {"fine_tuning_job_id": first.id}
    reported = await ask(client, "Get", pb.GetFineTuningJobRequest(**one))
    listed = await ask(client, "List", pb.ListFineTuningJobsRequest(limit=1))
    rest_of = await ask(client, "List", pb.ListFineTuningJobsRequest(after=second.id))
    labelled = await ask(client, "List", pb.ListFineTuningJobsRequest(metadata={"t": "a"}))
    checkpoints = await ask(client, "ListCheckpoints", pb.ListFineTuningCheckpointsRequest(**one))
    assert [each.id for each in labelled.data] == [first.id]
    async with gateway.http() as http:
        for message, path in (
            (reported, f"{JOBS}/{first.id}"),
            (listed, f"{JOBS}?limit=1"),
            (rest_of, f"{JOBS}?after={second.id}"),
            (checkpoints, f"{JOBS}/{first.id}/checkpoints"),
        ):
            assert plain(as_rest(message)) == plain(bare((await http.get(path)).json())), path
    again = await ask(client, "Create", asking(training_file=file, method=reported.method))
    assert again.method.supervised.hyperparameters.batch_size == reported.hyperparameters.batch_size


def plain(document: Any) -> Any:
    """Return the document without ids, which only one side has, in a form that both share."""
    if isinstance(document, dict):
        kept = {name: plain(value) for name, value in document.items() if name != "id" and value != "auto"}
        return {name: value for name, value in kept.items() if value not in ({}, [], None)}
    if isinstance(document, list):
        return "all-linear" if document == ["all-linear"] else [plain(each) for each in document]
    return document


async def test_pause_resume_and_cancel(gateway: Gateway, client: Client, file: str) -> None:
    job = await ask(client, "Create", asking(training_file=file))
    one = {"fine_tuning_job_id": job.id}
    assert (await ask(client, "Pause", pb.PauseFineTuningJobRequest(**one))).status == "paused"
    assert (await ask(client, "Resume", pb.ResumeFineTuningJobRequest(**one))).status == "validating_files"
    assert (await ask(client, "Cancel", pb.CancelFineTuningJobRequest(**one))).status == "cancelled"
    late = await rejection(ask(client, "Resume", pb.ResumeFineTuningJobRequest(**one)))
    assert (late.status, late.code) == (grpc.StatusCode.ABORTED, "job_not_paused")


async def test_an_idempotency_key_is_shared_with_rest(gateway: Gateway, client: Client, file: str) -> None:
    once = ("idempotency-key", "once")
    first = await ask(client, "Create", asking(training_file=file, suffix="poet"), once)
    assert await ask(client, "Create", asking(training_file=file, suffix="poet"), once) == first
    async with gateway.http() as http:
        body = {"model": MODEL_ID, "training_file": file, "suffix": "poet"}
        answer = await http.post(JOBS, json=body, headers={"idempotency-key": "once"})
        assert (answer.json()["id"], answer.headers["idempotent-replayed"]) == (first.id, "true")
    other = await rejection(ask(client, "Create", asking(training_file=file), once))
    assert (other.status, other.code) == (grpc.StatusCode.ABORTED, "idempotency_key_reused")


async def test_a_job_is_followed_to_its_end(gateway: Gateway, client: Client, file: str) -> None:
    worker = FakeWorker(gateway)
    job = await ask(client, "Create", asking(training_file=file))
    wanted = pb.ListFineTuningEventsRequest(fine_tuning_job_id=job.id, follow=True)
    events = aiter(client.fine_tuning.ListEvents(wanted, metadata=client.metadata))
    async with asyncio.timeout(60):
        await worker.validate()
        held = await worker.train(4)
        seen = [await anext(events), await anext(events)]
        await worker.run("log_event", job.id, "event 0")
        await worker.fail(held)
        seen += [event async for event in events]
    assert [event.message for event in seen[:3]] == ["Step 1/4", "Step 2/4", "event 0"]
    assert len(seen) == 3
    assert seen[1].data == {"step": 2, "total_steps": 4, "train_loss": 1.0, "train_mean_token_accuracy": 0.5}
    assert (seen[1].type, seen[2].type) == ("metrics", "message")
    rest = pb.ListFineTuningEventsRequest(fine_tuning_job_id=job.id, after=seen[1].id, follow=True)
    assert [event async for event in client.fine_tuning.ListEvents(rest, metadata=client.metadata)] == seen[2:]


async def test_a_client_that_does_not_follow_gets_the_existing_events(
    gateway: Gateway, client: Client, file: str
) -> None:
    job = await ask(client, "Create", asking(training_file=file))
    worker = FakeWorker(gateway)
    async with worker.store.tenant(gateway.tenant_id, write=True) as scope:
        for number in range(150):  # more than one page
            await scope.job_lease.log_event(job.id, f"event {number}")
    wanted = pb.ListFineTuningEventsRequest(fine_tuning_job_id=job.id)
    seen = [event async for event in client.fine_tuning.ListEvents(wanted, metadata=client.metadata)]
    assert [event.message for event in seen] == [f"event {number}" for number in range(150)]


async def test_followers_end_with_a_drain_and_with_their_key(gateway: Gateway, client: Client, file: str) -> None:
    job = await ask(client, "Create", asking(training_file=file))
    async with gateway.admin() as admin:
        made = (await admin.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["finetune"]})).json()
    wanted = pb.ListFineTuningEventsRequest(fine_tuning_job_id=job.id, follow=True)
    await FakeWorker(gateway).run("log_event", job.id, "begun")
    async with connected(gateway.grpc_target, made["secret"]) as other:
        calls = [each.fine_tuning.ListEvents(wanted, metadata=each.metadata) for each in (client, other)]
        async with asyncio.timeout(60):
            for call in calls:
                assert (await call.read()).message == "begun"
            async with gateway.admin() as admin:
                await admin.delete(f"/admin/v1/keys/{made['id']}")
            assert (await rejection(calls[1].read())).status == grpc.StatusCode.UNAUTHENTICATED
            gateway.lifecycle.begin_drain()
            assert (await rejection(calls[0].read())).code == "shutting_down"


async def test_rejections_name_their_field(gateway: Gateway, client: Client, file: str) -> None:
    odd = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 0}}}
    cases: list[tuple[str, Any, grpc.StatusCode, str]] = [
        ("Create", asking(training_file=file, method=odd), grpc.StatusCode.INVALID_ARGUMENT,
         "method.supervised.hyperparameters.n_epochs"),
        ("Create", asking(training_file=file, method={}), grpc.StatusCode.INVALID_ARGUMENT, "method.type"),
        ("Create", asking(), grpc.StatusCode.INVALID_ARGUMENT, "training_file"),
        ("Create", asking(training_file="file-x"), grpc.StatusCode.NOT_FOUND, "training_file"),
        ("Create", asking(training_file=file, model="x"), grpc.StatusCode.NOT_FOUND, "model"),
        ("List", pb.ListFineTuningJobsRequest(limit=0), grpc.StatusCode.INVALID_ARGUMENT, "limit"),
        ("List", pb.ListFineTuningJobsRequest(after="x"), grpc.StatusCode.INVALID_ARGUMENT, "after"),
        ("List", pb.ListFineTuningJobsRequest(metadata={"k" * 65: "v"}), grpc.StatusCode.INVALID_ARGUMENT, "metadata"),
        ("Get", pb.GetFineTuningJobRequest(), grpc.StatusCode.NOT_FOUND, "fine_tuning_job_id"),
    ]  # fmt: skip
    for method, request, status, param in cases:
        error = await rejection(ask(client, method, request))
        assert (error.status, error.param) == (status, param), (method, request)
    job = await ask(client, "Create", asking(training_file=file))
    one = {"fine_tuning_job_id": job.id, "after": "x"}
    call = client.fine_tuning.ListEvents(pb.ListFineTuningEventsRequest(**one), metadata=client.metadata)
    assert (await rejection(call.read())).param == "after"
    asked = pb.ListFineTuningCheckpointsRequest(**one)
    assert (await rejection(ask(client, "ListCheckpoints", asked))).param == "after"
