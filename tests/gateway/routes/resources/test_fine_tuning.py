"""Fine-tuning jobs through OpenAI's client, on both databases; the tests take the worker's place."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent
from openai.types.fine_tuning.jobs import FineTuningJobCheckpoint

from loragate.finetune.jobs.hyperparameters import Hyperparameters
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.fake_worker import TOKENS, FakeWorker
from tests.gateway.routes.inference.test_openai_types import read
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

OURS = ("evaluation", "progress", "start_version", *Hyperparameters.model_fields)


@pytest.fixture
def config(on_both: GatewayConfig) -> GatewayConfig:
    return on_both


@pytest.fixture
def worker(gateway: Gateway) -> FakeWorker:
    return FakeWorker(gateway)


async def data_file(client: AsyncOpenAI) -> str:
    return (await client.files.create(file=("train.jsonl", b"{}\n"), purpose="fine-tune")).id


async def document(gateway: Gateway, path: str) -> Any:
    async with gateway.http() as http:
        answer = await http.get(f"/v1/fine_tuning/jobs{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


async def test_from_a_file_to_a_model_that_generates(gateway: Gateway, worker: FakeWorker, upload: Any) -> None:
    client = gateway.openai()
    file, jobs = await data_file(client), client.fine_tuning.jobs
    method: Any = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2, "batch_size": "auto"}}}
    made = await jobs.create(model=MODEL_ID, training_file=file, suffix="poet", method=method, metadata={"team": "a"})
    assert (made.status, made.model, made.training_file) == ("validating_files", MODEL_ID, file)
    assert (made.hyperparameters.n_epochs, made.hyperparameters.batch_size) == (2, "auto")
    assert (made.organization_id, made.metadata, made.integrations) == (gateway.tenant_id, {"team": "a"}, [])
    assert 0 <= made.seed < 1 << 31
    for unknown in (made.error, made.fine_tuned_model, made.finished_at, made.trained_tokens, made.estimated_finish):
        assert unknown is None
    assert await jobs.retrieve(made.id) == made
    await worker.validate()
    queued = await jobs.retrieve(made.id)
    assert (queued.status, queued.trained_tokens) == ("queued", None)
    assert queued.hyperparameters.model_dump() == {"n_epochs": 2, "batch_size": 4, "learning_rate_multiplier": 1.0}
    running = await worker.train(4)
    seen = await document(gateway, f"/{made.id}")
    assert (seen["status"], seen["progress"]) == ("running", {"step": 2, "total_steps": 4})
    assert seen["estimated_finish"] >= seen["created_at"]
    await worker.run("checkpoint", made.id, 2, {"train_loss": 1.0, "token_accuracy": 0.5}, None)
    model = await worker.succeed(running, upload)
    done = await jobs.retrieve(made.id)
    assert (done.status, done.fine_tuned_model, done.trained_tokens) == ("succeeded", model, 2 * TOKENS)
    assert model == f"ft:{MODEL_ID}:first:poet:{made.id[-8:]}"
    assert (done.result_files, done.estimated_finish) == (["file-results"], None)
    assert (done.finished_at or 0) >= done.created_at
    first = await jobs.list_events(made.id, limit=1)
    assert (first.data[0].message, first.data[0].type, first.has_more) == ("Step 2/4", "metrics", True)
    assert first.data[0].data == {
        "step": 2, "total_steps": 4, "train_loss": 1.0, "train_mean_token_accuracy": 0.5
    }  # fmt: skip
    assert [event.message async for event in first] == ["Step 2/4", "Step 1/4"]
    (checkpoint,) = (await jobs.checkpoints.list(made.id)).data
    assert (checkpoint.step_number, checkpoint.fine_tuning_job_id) == (2, made.id)
    assert (checkpoint.metrics.train_loss, checkpoint.metrics.train_mean_token_accuracy) == (1.0, 0.5)
    said = await client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}])
    assert said.model == model


async def test_every_shape_is_openais(gateway: Gateway, worker: FakeWorker, upload: Any) -> None:
    """No field of OpenAI's is missing, and only ours are added."""
    client = gateway.openai()
    file = await data_file(client)
    create: dict[str, Any] = {"model": MODEL_ID, "training_file": file, "validation_file": file, "seed": 7}
    ids = [(await client.fine_tuning.jobs.create(**create)).id for _ in range(3)]
    dpo: Any = {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.5}}}
    ids.append((await client.fine_tuning.jobs.create(**create, method=dpo)).id)
    for _ in ids:
        await worker.validate()
    for _ in range(2):
        job = await worker.train()
        await worker.run("checkpoint", job.id, 2, {"train_loss": 1.0}, f"ft:x:first::{job.id[-8:]}:ckpt-step-2")
        await (worker.succeed(job, upload) if job.id == ids[0] else worker.fail(job))
    await client.fine_tuning.jobs.cancel(ids[2])
    found = {each["id"]: each for each in (await document(gateway, ""))["data"]}
    ends = {job_id: read(FineTuningJob, found[job_id], *OURS) for job_id in ids}
    assert [ends[job_id].status for job_id in ids] == ["succeeded", "failed", "cancelled", "queued"]
    assert [ends[job_id].finished_at is None for job_id in ids] == [False, False, False, True]
    error = ends[ids[1]].error
    assert (error.code, error.param, error.message) == (
        "invalid_training_file", "training_file", "Line 3: it is no JSON."
    )  # fmt: skip
    assert (ends[ids[1]].fine_tuned_model, ends[ids[1]].result_files, ends[ids[1]].trained_tokens) == (None, [], None)
    tuned = ends[ids[3]].method
    assert (tuned.type, tuned.dpo.hyperparameters.beta, tuned.supervised) == ("dpo", 0.5, None)
    for event in (await document(gateway, f"/{ids[0]}/events"))["data"]:
        read(FineTuningJobEvent, event)
    (checkpoint,) = (await document(gateway, f"/{ids[0]}/checkpoints"))["data"]
    assert read(FineTuningJobCheckpoint, checkpoint).fine_tuned_model_checkpoint.endswith(":ckpt-step-2")
    left = await document(gateway, f"/{ids[1]}/checkpoints")
    assert (left["data"], left["has_more"]) == ([], False), "its adapter went with the job"


async def test_pause_resume_and_cancel(gateway: Gateway, worker: FakeWorker) -> None:
    client = gateway.openai()
    file, jobs = await data_file(client), client.fine_tuning.jobs
    job_id = (await jobs.create(model=MODEL_ID, training_file=file)).id
    statuses = [(await act(job_id)).status for act in (jobs.pause, jobs.pause, jobs.resume)]
    assert statuses == ["paused", "paused", "validating_files"]
    with pytest.raises(openai.ConflictError) as rejected:
        await jobs.resume(job_id)
    assert rejected.value.code == "job_not_paused"
    await worker.validate()
    await worker.train()
    assert (await jobs.pause(job_id)).status == "running", "its worker has not heard of it"
    await worker.run("pause", job_id)
    assert (await jobs.resume(job_id)).status == "queued"
    cancelled = await jobs.cancel(job_id)
    assert cancelled.status == "cancelled"
    assert cancelled.finished_at is not None
    assert await jobs.cancel(job_id) == cancelled
    for act in (jobs.pause, jobs.resume):
        with pytest.raises(openai.ConflictError):
            await act(job_id)


async def test_lists(gateway: Gateway) -> None:
    client = gateway.openai()
    file, jobs = await data_file(client), client.fine_tuning.jobs
    labels: list[dict[str, str]] = [{}, {"team": "a", "n[0]": ""}, {"team": "b"}, {"team": "a"}]
    ids = [(await jobs.create(model=MODEL_ID, training_file=file, metadata=each)).id for each in labels]

    async def found(**wanted: Any) -> list[int]:
        return [ids.index(job.id) async for job in jobs.list(**wanted)]

    assert await found(limit=1) == await found(metadata={}) == [3, 2, 1, 0]
    assert await found(limit=1, metadata={"team": "a"}) == [3, 1]
    assert await found(metadata={"team": "a", "n[0]": ""}) == [1]
    assert await found(after=ids[1]) == [0]
    assert [each["id"] for each in (await document(gateway, "?metadata=null"))["data"]] == [ids[0]]
    assert (await document(gateway, f"/{ids[0]}"))["metadata"] is None


async def test_a_job_starts_from_the_version_that_a_name_resolves_to(
    gateway: Gateway, worker: FakeWorker, upload: Any
) -> None:
    client = gateway.openai()
    file, jobs = await data_file(client), client.fine_tuning.jobs
    await jobs.create(model=MODEL_ID, training_file=file)
    await worker.validate()
    tuned = await worker.succeed(await worker.train(), upload)
    digests = [(await upload("poet", seed=seed))["digest"] for seed in (1, 2)]
    async with gateway.http() as http:
        await http.put("/v1/adapters/poet/aliases/old", json={"targets": [{"version": 1}]})
        await http.put("/v1/adapters/poet/aliases/split", json={"targets": [{"version": 1}, {"version": 2}]})
    for model, version in (("poet", 2), ("poet:1", 1), ("poet@old", 1)):
        made = (await jobs.create(model=model, training_file=file)).to_dict()
        start = {"name": "poet", "version": version, "digest": digests[version - 1]}
        assert (made["model"], made["start_version"]) == (model, start)
    made = (await jobs.create(model=tuned, training_file=file)).to_dict()
    assert made["start_version"]["name"] == f"ft-{tuned[-8:]}"  # type: ignore[index]
    with pytest.raises(openai.BadRequestError) as rejected:
        await jobs.create(model="poet@split", training_file=file)
    assert (rejected.value.code, rejected.value.param) == ("ambiguous_model", "model")
    async with gateway.http() as http:
        await http.patch("/v1/adapters/poet/versions/1", json={"status": "disabled"})
    with pytest.raises(openai.PermissionDeniedError):
        await jobs.create(model="poet:1", training_file=file)


async def test_an_idempotency_key_creates_one_job(gateway: Gateway) -> None:
    client = gateway.openai()
    file, jobs = await data_file(client), client.fine_tuning.jobs
    keyed: Any = {"extra_headers": {"idempotency-key": "k"}, "model": MODEL_ID, "training_file": file}
    first, again = await jobs.create(**keyed), await jobs.create(**keyed)
    assert first == again
    assert [job.id async for job in jobs.list()] == [first.id]
    with pytest.raises(openai.ConflictError):
        await jobs.create(**keyed, suffix="other")
