"""The routes of the training API: numbers of commands, futures, samples, sessions, limits, links."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import update

from loragate.adapter_store.database.clock import current_time
from loragate.adapter_store.store import Store
from loragate.adapter_store.tables.training import SampleRow
from loragate.adapter_store.training.lease import Progress
from loragate.adapter_store.training.objects import Outcome
from loragate.gateway.background.training import expire_training
from loragate.gateway.routes.training import sampling
from loragate.gateway.training.downloads import Download, DownloadLinks
from loragate.v1 import training_pb2 as pb
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
async def store(gateway: Gateway) -> Store:
    assert gateway.services is not None
    return gateway.services.store


class Api:
    """A client of the routes, whose trainer is the test."""

    def __init__(self, http: httpx.AsyncClient, gateway: Gateway, store: Store) -> None:
        self._http = http
        self._gateway = gateway
        self._store = store
        self.session_id = self.run_id = ""

    async def post(self, path: str, status: int = 200, /, **body: Any) -> Any:
        response = await self._http.post(f"/api/v1/{path}", json=body)
        assert response.status_code == status, response.text
        return response.json()

    async def begin(self) -> None:
        self.session_id = (await self.post("create_session", tags=[], sdk_version="0.38.0"))["session_id"]
        lora = {"rank": 4, "seed": 1}
        wanted = {"session_id": self.session_id, "model_seq_id": 0, "base_model": MODEL_ID, "lora_config": lora}
        made = await self.post("create_model", **wanted)
        assert await self.post("create_model", **wanted) == made
        await self.post("create_model", 400, **wanted | {"lora_config": {"rank": 8, "seed": 1}})
        self.run_id = made["model_id"]
        assert self.run_id == f"{self.session_id}:train:0"
        async with self._store.admin(write=True) as admin:
            await admin.training_queue.claim("t1", 1)

    async def finish(self, outcome: Outcome) -> None:
        """Record the outcome of the run's next command."""
        async with self._store.tenant(self._gateway.tenant_id, write=True) as scope:
            run = await scope.training_runs.get(self.run_id)
            progress = Progress({run.next_seq: outcome}, gradients_failed=False)
            await scope.training_lease.record(self.run_id, "t1", progress, MODEL_ID)

    async def retrieve(self, seq: int, status: int = 200) -> Any:
        return await self.post("retrieve_future", status, request_id=f"{self.run_id}:{seq}")


@pytest.fixture
async def api(gateway: Gateway, store: Store) -> Any:
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        http.headers["x-api-key"] = f"tml-{gateway.key}"
        client = Api(http, gateway, store)
        await client.begin()
        yield client


async def test_commands_and_their_futures(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"model_id": api.run_id, "adam_params": {"learning_rate": 1e-3}}
    await api.finish(Outcome.done(b'{"model_id": "m"}'))
    later = await api.post("optim_step", **request, seq_id=2)
    assert later == {"request_id": f"{api.run_id}:2", "model_id": api.run_id}
    rejected = await api.post("optim_step", 400, **request | {"adam_params": {"beta1": 2.0}}, seq_id=1)
    assert rejected["error"]["param"] == "adam_params.beta1"
    assert (await api.retrieve(1))["category"] == "user"
    assert await api.post("optim_step", **request, seq_id=2) == later
    reused = await api.post("optim_step", 400, **request | {"adam_params": {}}, seq_id=2)
    assert (reused["error"]["code"], reused["error"]["param"]) == ("seq_id_reused", "seq_id")
    waiting = asyncio.create_task(api.retrieve(2))
    await asyncio.sleep(0.1)
    await api.finish(Outcome.failed("it was rejected"))
    await api.finish(Outcome.done(b'{"metrics": {"a:mean": 1.0}}'))
    assert await waiting == {"metrics": {"a:mean": 1.0}}
    assert await api.retrieve(2) == await waiting
    monkeypatch.setattr(sampling, "_HOLD_SECONDS", 0.1)
    await api.post("optim_step", **request, seq_id=3)
    pending = await api.retrieve(3)
    assert (pending["type"], pending["queue_state"]) == ("try_again", "active")
    assert (await api.retrieve(9, 404))["error"]["code"] == "request_not_found"
    await api.post("optim_step", 400, **request, seq_id=100_000)
    wrong: dict[str, Any] = {"optimizer_params": {"type": "dimuon"}, "adam_params": {"learning_rate": "x"}}
    for seq, (field, value) in enumerate(wrong.items(), 4):
        response = await api.post("optim_step", 400, model_id=api.run_id, seq_id=seq, **{field: value})
        assert field in response["error"]["param"]


async def test_forward_backward_is_binary(api: Api, gateway: Gateway) -> None:
    request = pb.ForwardBackwardRequest(model_id=api.run_id, seq_id=1, loss_fn="cross_entropy", data=[pb.Datum()])
    async with gateway.http() as http:

        async def send(content: bytes, **headers: str) -> httpx.Response:
            return await http.post("/api/v1/forward_backward", content=content, headers=PROTOBUF | headers)

        assert (await send(request.SerializeToString())).json()["request_id"] == f"{api.run_id}:1"
        assert (await send(b"\xff\xff")).json()["error"]["code"] == "invalid_protobuf"
        assert (await send(b"x" * (9 << 20))).status_code == 413
        assert (await http.post("/api/v1/forward_backward", json={})).status_code == 415
        compressed = {"content-encoding": "zstd"}
        assert (await send(request.SerializeToString(), **compressed)).status_code == 415
    output = pb.ForwardBackwardOutput(metrics={"loss:sum": 2.0})
    await api.finish(Outcome.done(b"{}"))
    await api.finish(Outcome.done(output.SerializeToString()))
    async with gateway.http() as http:
        found = await http.post("/api/v1/retrieve_future", json={"request_id": f"{api.run_id}:1"})
    assert found.headers["content-type"] == PROTOBUF["content-type"]
    assert pb.ForwardBackwardOutput.FromString(found.content) == output


async def test_samples(api: Api, gateway: Gateway) -> None:
    body = {"session_id": api.session_id, "sampling_session_seq_id": 0, "base_model": MODEL_ID}
    sampler = (await api.post("create_sampling_session", **body))["sampling_session_id"]
    await api.post("create_sampling_session", **body)
    request = {
        "sampling_session_id": sampler,
        "seq_id": 10**9,
        "num_samples": 2,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}, {"tokens": [7]}]},
        "sampling_params": {"max_tokens": 4, "stop": []},
        "prompt_logprobs": True,
        "topk_sample_logprobs": 2,
    }
    made = await api.post("asample", **request)
    assert len(made["sample_sequence_ids"]) == 2
    assert await api.post("asample", **request) == made
    async with gateway.http() as http:
        found = await http.post("/api/v1/retrieve_future", json={"request_id": made["request_id"]})
    response = pb.SampleResponse.FromString(found.content)
    assert len(response.sequences) == 2
    for sequence in response.sequences:
        tokens, logprobs = np.frombuffer(sequence.tokens, "<i4"), np.frombuffer(sequence.logprobs or b"", "<f4")
        assert 1 <= len(tokens) == len(logprobs) <= 4
        assert (sequence.topk_sampled_logprobs.k, sequence.topk_sampled_logprobs.length) == (2, len(tokens))
    scores = np.frombuffer(response.prompt_logprobs or b"", "<f4")
    assert np.isnan(scores[0])
    assert scores[1:].tolist() == [-7 / 8, -1.0]
    await api.post("asample", 400, **request | {"seq_id": 10**9 + 1, "prompt_alt_tokens_k": 2})
    await api.post("asample", 400, **request | {"seq_id": 10**9 + 1, "prompt": {"chunks": []}})
    await api.post("asample", 400, **request | {"prompt_logprobs": False})
    async with gateway.http() as http, asyncio.timeout(20):
        while not (usage := (await http.get("/v1/usage")).json()["data"]):
            await asyncio.sleep(0.1)
    assert [each["requests"] for each in usage] == [1]


async def test_a_sample_whose_gateway_died_is_sent_again(api: Api, store: Store, gateway: Gateway) -> None:
    body = {"session_id": api.session_id, "sampling_session_seq_id": 0, "base_model": MODEL_ID}
    sampler = (await api.post("create_sampling_session", **body))["sampling_session_id"]
    async with store.tenant(gateway.tenant_id, write=True) as scope:
        await scope.training_samplers.submit(sampler, 7, b"x", "gateway-that-died")
    async with store._database.operator(write=True) as session:
        past = await current_time(session) - timedelta(seconds=1)
        await session.execute(update(SampleRow).values(held_until=past))
    await api.post("retrieve_future", 410, request_id=f"{sampler}:7")


async def test_sessions_end(api: Api, store: Store, gateway: Gateway) -> None:
    await api.post("session_heartbeat", session_id=api.session_id)
    await expire_training(store)
    await api.post("session_heartbeat", session_id=api.session_id)
    await expire_training(store, timedelta(seconds=-1))
    await api.post("session_heartbeat", 410, session_id=api.session_id)
    late = {"model_id": api.run_id, "seq_id": 1, "adam_params": {}}
    assert (await api.post("optim_step", 400, **late))["error"]["code"] == "run_ended"
    assert "has ended" in (await api.retrieve(0))["error"]
    body = {"session_id": api.session_id, "sampling_session_seq_id": 3, "base_model": MODEL_ID}
    assert (await api.post("create_sampling_session", 400, **body))["error"]["code"] == "session_ended"


async def test_limits_are_400s(api: Api, gateway: Gateway) -> None:
    """The SDK repeats a request that is answered with 409 or 402 for a long time."""
    async with gateway.admin() as admin:
        limits = {"limits": {"max_training_sessions": 1, "max_training_runs": 1}}
        assert (await admin.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json=limits)).status_code == 200
    refused = await api.post("create_session", 400, tags=[], sdk_version="1")
    assert refused["error"]["code"] == "too_many_training_sessions"
    wanted = {"session_id": api.session_id, "model_seq_id": 1, "base_model": MODEL_ID}
    assert (await api.post("create_model", 400, **wanted))["error"]["code"] == "too_many_training_runs"


async def test_what_is_not_there_names_the_alternative(api: Api) -> None:
    assert "tml-" in (await api.post("auth/token", 404))["error"]["message"]
    assert "forward_backward_custom" in (await api.post("create_custom_loss", 404))["error"]["message"]
    config = await api.post("client/config", sdk_version="0.38.0")
    assert (config["proto_compress_fwdbwd"], config["parallel_fwdbwd_chunks"]) == (False, True)


def test_links_expire_and_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    links, download = DownloadLinks(b"a secret key of the tests"), Download("tn_1", "sha256:ab", "adapter_config.json")
    token = links.token(download, int(time.time()) + 60)
    assert links.read(token) == download
    for bad in (token[:-2] + "AA", "", "x", DownloadLinks(b"another key").token(download, int(time.time()) + 60)):
        with pytest.raises(Exception, match="not valid"):
            links.read(bad)
    with pytest.raises(Exception, match="not valid"):
        links.read(links.token(download, int(time.time()) - 1))
