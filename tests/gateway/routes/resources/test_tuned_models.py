"""A fine-tuning job's result can be used by its model name wherever a model is accepted."""

from typing import Any

import openai
import pytest

from loragate.v1.adapters_pb2 import GetAdapterRequest
from loragate.v1.inference_pb2 import ChatRequest, GenerateRequest
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.grpc_client import Client, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/completions", {"prompt": "x"}),
    ("/v1/responses", {"input": "x"}),
    ("/v1/embeddings", {"input": "x"}),
]


@pytest.fixture
def worker(gateway: Gateway) -> FakeWorker:
    return FakeWorker(gateway)


async def tuned(gateway: Gateway, worker: FakeWorker, upload: Any, suffix: str | None = "poet") -> str:
    """The name of a job's result."""
    client = gateway.openai()
    file = await client.files.create(file=("a", b"{}"), purpose="fine-tune")
    await client.fine_tuning.jobs.create(model=MODEL_ID, training_file=file.id, suffix=suffix)
    await worker.validate()
    return await worker.succeed(await worker.train(), upload)


async def test_it_is_accepted_by_every_endpoint(
    gateway: Gateway, client: Client, worker: FakeWorker, upload: Any
) -> None:
    model = await tuned(gateway, worker, upload)
    adapter = f"poet-{model[-8:]}"
    async with gateway.http() as http:
        for path, body in ASKED:
            answer = await http.post(path, json={"model": model, **body})
            assert answer.status_code == 200, answer.text
            assert answer.json()["model"] == model
            assert answer.headers["x-loragate-adapter"].startswith(f"{adapter}:1@sha256:")
        assert (await http.post("/v1/completions", json={"model": adapter, "prompt": "x"})).status_code == 200
        # PEFT's files are uploaded again, so that the name's alias can move.
        await upload(adapter, seed=5, alias="new")
        moved = {"targets": [{"version": 2}]}
        assert (await http.put(f"/v1/adapters/{adapter}/aliases/trained", json=moved)).status_code == 200
        answer = await http.post("/v1/completions", json={"model": model, "prompt": "x"})
        assert answer.headers["x-loragate-adapter"].startswith(f"{adapter}:2@")
    chat = ChatRequest(model=model, messages=[{"role": "user", "content": "x"}])
    assert (await client.inference.Chat(chat, metadata=client.metadata)).model == model
    generate = GenerateRequest(model=model, prompt="x")
    assert (await client.inference.Generate(generate, metadata=client.metadata)).model == model


async def test_it_is_listed_as_a_model(gateway: Gateway, worker: FakeWorker, upload: Any) -> None:
    first = await tuned(gateway, worker, upload)
    second = await tuned(gateway, worker, upload, suffix=None)
    models = {model.id: model async for model in gateway.openai().models.list()}
    assert models.keys() == {MODEL_ID, f"poet-{first[-8:]}", f"ft-{second[-8:]}", first, second}
    assert models[first].owned_by == models[second].owned_by == gateway.tenant_id
    assert models[MODEL_ID].owned_by == "loragate"
    found = await gateway.openai().models.retrieve(first)
    assert (found.id, found.owned_by) == (first, gateway.tenant_id)
    async with gateway.http() as http:
        await http.delete(f"/v1/adapters/poet-{first[-8:]}")
    left = [model.id async for model in gateway.openai().models.list()]
    assert left == [MODEL_ID, f"ft-{second[-8:]}", second]
    other = gateway.openai(gateway.other_key)
    assert [model.id async for model in other.models.list()] == [MODEL_ID]


async def test_its_adapter_is_found_by_the_models_name(
    gateway: Gateway, client: Client, worker: FakeWorker, upload: Any
) -> None:
    model = await tuned(gateway, worker, upload)
    async with gateway.http() as http, gateway.http(gateway.other_key) as foreign:
        found = await http.get(f"/v1/adapters/{model}")
        assert found.json() == (await http.get(f"/v1/adapters/poet-{model[-8:]}")).json()
        for asked in (
            await foreign.get(f"/v1/adapters/{model}"),
            await http.get(f"/v1/adapters/{model}:ckpt-step-2"),
            await http.get(f"/v1/adapters/{model}/versions"),
            await http.patch("/v1/adapters/ft:base:first:poet:12345678", json={"tags": []}),
        ):
            assert (asked.status_code, asked.json()["error"]["code"]) == (404, "adapter_not_found")
            assert "is called `<suffix>-<end of the job's id>`" in asked.json()["error"]["message"]
    answer = await client.adapters.Get(GetAdapterRequest(name=model), metadata=client.metadata)
    assert answer.name == f"poet-{model[-8:]}"
    other = GetAdapterRequest(name=f"{model}:ckpt-step-2")
    assert (await rejection(client.adapters.Get(other, metadata=client.metadata))).code == "adapter_not_found"


async def test_foreign_and_missing_ones_are_the_same_404(
    gateway: Gateway, client: Client, worker: FakeWorker, upload: Any
) -> None:
    model = await tuned(gateway, worker, upload)
    tail = model[-8:]
    others = [
        f"ft:{MODEL_ID}:second:poet:{tail}",
        f"ft:{MODEL_ID}:first::{tail}",
        f"ft:other:first:poet:{tail}",
        f"ft:{MODEL_ID}:first:poet:{tail[::-1]}x"[: len(model)],
        f"{model}:ckpt-step-2",
        f"ft:{MODEL_ID}:first:poet",
        f"{model}:1",
        f"{model}@trained",
    ]
    async with gateway.http() as own, gateway.http(gateway.other_key) as foreign:
        for http, name in [(foreign, model), *((own, name) for name in others)]:
            for path, body in ASKED:
                answer = await http.post(path, json={"model": name, **body})
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found"), name
                words = f"The model '{name}' does not exist or you do not have access to it."
                assert answer.json()["error"]["message"] == words
            assert (await http.get(f"/v1/models/{name}")).status_code == 404
    reported = await rejection(
        client.inference.Generate(GenerateRequest(model=others[0], prompt="x"), metadata=client.metadata)
    )
    assert reported.code == "model_not_found"


async def test_it_generates_from_the_jobs_end_until_it_is_deleted(
    gateway: Gateway, worker: FakeWorker, upload: Any
) -> None:
    client = gateway.openai()
    model = await tuned(gateway, worker, upload)
    file = (await client.files.list()).data[0].id
    job = await client.fine_tuning.jobs.create(model=MODEL_ID, training_file=file, suffix="clerk")
    await worker.validate()
    held = await worker.train()
    name, adapter = f"ft:{MODEL_ID}:first:clerk:{job.id[-8:]}", f"clerk-{job.id[-8:]}"
    await upload(adapter, alias="trained")
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model=name, prompt="x")
    step = f"{name}:ckpt-step-2"
    await upload(adapter, alias="ckpt-step-2")
    await worker.run("checkpoint", held.id, 2, {}, step)
    assert (await client.completions.create(model=step, prompt="x")).model == step
    await worker.run("succeed", held.id, name, None)
    for each in (name, step, model):
        assert (await client.completions.create(model=each, prompt="x")).model == each
    async with gateway.http() as http:
        await http.delete(f"/v1/adapters/{adapter}")
    for each in (name, step):
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model=each, prompt="x")
    assert (await client.completions.create(model=model, prompt="x")).model == model


async def test_it_is_deleted_by_its_name(gateway: Gateway, worker: FakeWorker, upload: Any) -> None:
    client, foreign = gateway.openai(), gateway.openai(gateway.other_key)
    model = await tuned(gateway, worker, upload)
    await upload("poet")
    for name in (MODEL_ID, "poet", f"poet-{model[-8:]}", f"{model}:ckpt-step-2", model.replace("poet", "goat"), "x"):
        with pytest.raises(openai.NotFoundError) as rejected:
            await client.models.delete(name)
        assert (rejected.value.code, rejected.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        await foreign.models.delete(model)
    assert (await client.completions.create(model=model, prompt="x")).model == model
    gone = await client.models.delete(model)
    assert (gone.id, gone.object, gone.deleted) == (model, "model", True)
    for ask in (client.completions.create(model=model, prompt="x"), client.models.delete(model)):
        with pytest.raises(openai.NotFoundError):
            await ask
    assert [each.id async for each in client.models.list()] == [MODEL_ID, "poet"]
