"""Embeddings through the official client."""

import asyncio
import base64
import struct
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError

from loragate.v1 import engine_pb2 as pb
from tests.gateway.routes.inference.test_rejections import rejected
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

URL = "/v1/embeddings"


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


async def created(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    async with gateway.http() as http:
        response = await http.post(URL, json={"model": MODEL_ID, "input": "secret words", **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_one_text(gateway: Gateway) -> None:
    """The client requests base64 by itself and decodes it."""
    async with gateway.openai() as client:
        answer = await client.embeddings.create(model=MODEL_ID, input="over the", user="someone")
    assert answer.object == "list"
    assert answer.model == MODEL_ID
    assert [(item.object, item.index) for item in answer.data] == [("embedding", 0)]
    assert answer.data[0].embedding == pytest.approx([0.6, -0.8])
    (submit,) = gateway.engine.submits
    assert list(submit.prompt_token_ids) == gateway.engine.tokenizer.encode("over the").ids
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == len(submit.prompt_token_ids)
    assert submit.pooling == pb.POOLING_LAST
    assert not submit.HasField("adapter")
    assert submit.share.tenant_id == gateway.tenant_id
    assert submit.cache_salt


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_many_texts_are_returned_in_order(gateway: Gateway, encoding: Any) -> None:
    """There are more than are embedded at once, and the first ones take longest."""
    gateway.engine.vector = lambda submit: [float(submit.prompt_token_ids[0]), 1.0]
    gateway.engine.pause_after = 0
    inputs = [[i % 300, 7] for i in range(500)]
    async with gateway.openai() as client:
        request = asyncio.create_task(
            client.embeddings.create(
                model=MODEL_ID, input=inputs, encoding_format=encoding, extra_body={"normalize": False}
            )
        )
        await gateway.engine.paused.wait()
        gateway.engine.pause_after = None
        while len(gateway.engine.submits) < 64:
            await asyncio.sleep(0.01)
        gateway.engine.resume.set()
        answer = await request
    assert [item.index for item in answer.data] == list(range(500))
    vectors = [
        list(struct.unpack("<2f", base64.b64decode(v))) if isinstance(v, str) else v
        for v in (item.embedding for item in answer.data)
    ]
    assert vectors == [[i % 300, 1.0] for i in range(500)]
    assert answer.usage.prompt_tokens == 1000


@pytest.mark.parametrize(
    ("input_", "prompts"),
    [([5, 6], [[5, 6]]), ([[5, 6], [7]], [[5, 6], [7]]), ([5] * 256, [[5] * 256])],
    ids=["ids", "lists of ids", "as long as the context"],
)
async def test_token_ids(gateway: Gateway, input_: Any, prompts: list[list[int]]) -> None:
    answer = await created(gateway, input=input_)
    assert len(answer["data"]) == len(prompts)
    assert sorted(list(submit.prompt_token_ids) for submit in gateway.engine.submits) == prompts


@pytest.mark.parametrize(
    ("fields", "vector"),
    [
        ({}, [0.6, -0.8]),
        ({"normalize": None, "encoding_format": None, "dimensions": None, "pooling": None}, [0.6, -0.8]),
        ({"normalize": True, "encoding_format": "float"}, [0.6, -0.8]),
        ({"normalize": False}, [3.0, -4.0]),
        ({"encoding_format": "base64"}, base64.b64encode(struct.pack("<2f", 0.6, -0.8)).decode()),
        ({"encoding_format": "base64", "normalize": False}, base64.b64encode(struct.pack("<2f", 3, -4)).decode()),
    ],
)
async def test_encodings_of_a_vector(gateway: Gateway, fields: dict[str, Any], vector: Any) -> None:
    (item,) = (await created(gateway, **fields))["data"]
    assert item == {"object": "embedding", "index": 0, "embedding": vector}


async def test_a_zero_vector_stays_zero(gateway: Gateway) -> None:
    gateway.engine.vector = lambda submit: [0.0, 0.0]
    assert (await created(gateway))["data"][0]["embedding"] == [0.0, 0.0]


async def test_mean_pooling(gateway: Gateway) -> None:
    await created(gateway, pooling="mean")
    assert gateway.engine.submits[0].pooling == pb.POOLING_MEAN


async def test_an_adapter_by_name_and_version(gateway: Gateway, upload: Any) -> None:
    version = await upload("mine")
    async with gateway.openai() as client:
        for name in ("mine", "mine:1", "mine@default"):
            raw = await client.embeddings.with_raw_response.create(model=name, input="x")
            assert raw.headers["x-loragate-adapter"] == f"mine:1@{version['digest']}"
            assert raw.parse().model == name
    assert {submit.adapter.digest for submit in gateway.engine.submits} == {version["digest"]}


async def test_another_tenant_s_adapter_is_not_found(gateway: Gateway, upload: Any) -> None:
    await upload("foreign")
    async with gateway.openai(gateway.other_key) as client:
        with pytest.raises(NotFoundError) as caught:
            await client.embeddings.create(model="foreign", input="x")
    assert caught.value.code == "model_not_found"
    assert gateway.engine.submits == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [1, 10_000]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": ["a", [5] * 257]}, "input"),
        ({"input": [[1], [5] * 257]}, "input"),
        ({"input": "\u65e5" * 100_000}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 256}, "dimensions"),
        ({"pooling": "max"}, "pooling"),
        ({"normalize": "yes"}, "normalize"),
        ({"model": ""}, "model"),
        ({"flavour": "vanilla"}, "flavour"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_requests_name_the_field(gateway: Gateway, fields: dict[str, Any], param: str) -> None:
    error = await rejected(gateway, {"model": MODEL_ID, "input": "secret words", **fields}, URL)
    assert error["param"] == param


async def test_an_input_longer_than_the_context(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        with pytest.raises(BadRequestError) as caught:
            await client.embeddings.create(model=MODEL_ID, input=[5] * 257)
    assert caught.value.code == "context_length_exceeded"
    assert "257 tokens" in caught.value.message


async def test_without_a_key(gateway: Gateway) -> None:
    async with gateway.http("lg-unknown") as http:
        assert (await http.post(URL, json={"model": MODEL_ID, "input": "x"})).status_code == 401


async def test_a_client_that_leaves_aborts_all_of_it(gateway: Gateway) -> None:
    gateway.engine.pause_after = 0
    async with gateway.http() as http:
        request = asyncio.create_task(http.post(URL, json={"model": MODEL_ID, "input": ["one", "two", "three"]}))
        while len(gateway.engine.submits) < 3:
            await asyncio.sleep(0.01)
        request.cancel()
        aborted = {await gateway.engine.aborted.get() for _ in range(3)}
    assert aborted == {submit.request_id for submit in gateway.engine.submits}
    assert await gateway.lifecycle.idle(5)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (pb.ERROR_CODE_NON_FINITE, 500),
        (pb.ERROR_CODE_INVALID_REQUEST, 400),
        (pb.ERROR_CODE_OVERLOADED, 503),
        (pb.ERROR_CODE_ADAPTER_UNAVAILABLE, 503),
    ],
)
async def test_one_failure_fails_the_request_and_ends_the_rest(gateway: Gateway, code: Any, status: int) -> None:
    engine = gateway.engine
    engine.pause_after = 0
    engine.failure = pb.EngineError(code=code, message="scripted")
    engine.fails = lambda submit: list(submit.prompt_token_ids) == [9]
    async with gateway.openai() as client:
        with pytest.raises(APIStatusError) as caught:
            await client.embeddings.create(model=MODEL_ID, input=[[5], [9]])
    assert caught.value.status_code == status
    assert await engine.aborted.get() in {submit.request_id for submit in engine.submits}


@pytest.mark.asyncio(loop_scope="function")
async def test_while_the_engine_is_down(own_gateway: Gateway) -> None:
    await own_gateway.engine.kill()
    async with own_gateway.http() as http:
        while (await http.get("/readyz")).status_code == 200:
            await asyncio.sleep(0.01)
        response = await http.post(URL, json={"model": MODEL_ID, "input": "x"})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_unavailable"


@pytest.mark.asyncio(loop_scope="function")
async def test_the_models_own_width_may_be_asked_for(own_gateway: Gateway) -> None:
    body = {"model": MODEL_ID, "input": "x", "metadata": {"a": "b"}, "safety_identifier": "u", "store": False}
    async with own_gateway.http() as http:
        own_gateway.services.link.base.manifest.output_head = "model.layers.0.self_attn.q_proj"
        width = own_gateway.services.link.base.width
        assert (await http.post(URL, json={**body, "dimensions": width})).status_code == 200
        answer = await http.post(URL, json={**body, "dimensions": width - 1})
    assert answer.status_code == 400
    assert f"have {width} numbers" in answer.json()["error"]["message"]
