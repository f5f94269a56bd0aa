"""Classification, scores and rankings over REST and gRPC, with an engine whose logits are scripted."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToDict

from loragate.v1 import engine_pb2 as pb
from loragate.v1 import inference_pb2
from tests.gateway import tiny_model
from tests.gateway.batches.batch_files import create, ended, request_line, results
from tests.gateway.grpc_client import connected, rich_error
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLASSIFY, SCORE, RERANK, RERANK_2 = "/v1/classify", "/v1/score", "/v1/rerank", "/v2/rerank"
LABELS = {"0": "billing", "1": "technical", "2": "other"}
MULTI = {"problem_type": "multi_label_classification"}
Upload = Callable[..., Awaitable[dict[str, Any]]]
_uploaded: dict[int, dict[str, dict[str, Any]]] = {}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {**tiny_model.HEADS, "pad_token_id": 7}


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    return shared_gateway


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def versions(gateway: Gateway, upload: Upload) -> dict[str, dict[str, Any]]:
    """A classifier of each kind, and an adapter that generates."""
    if id(gateway) not in _uploaded:
        _uploaded[id(gateway)] = {
            "topics": await upload("topics", labels=3, id2label=LABELS),
            "many": await upload("many", labels=3, seed=1, **MULTI),
            "value": await upload("value", labels=1, seed=2, problem_type="regression"),
            "reward": await upload("reward", labels=1, seed=3),
            "names": await upload("names", labels=2, seed=4, task_type="TOKEN_CLS", id2label={"0": "O", "1": "PER"}),
            "text": await upload("text", seed=5),
        }
    gateway.engine.vector = logits
    return _uploaded[id(gateway)]


def logits(submit: pb.Submit) -> list[float]:
    """Return logits that depend on the prompt's length, so that items differ."""
    length = len(submit.prompt_token_ids)
    if submit.pooling == pb.POOLING_CLASSIFY_TOKENS:
        return [value for token in submit.prompt_token_ids for value in (0.0, token / 100)]
    return [float(length), 1.0, 2.0] if submit.adapter.digest in _three_labels() else [length / 4]


def _three_labels() -> set[str]:
    return {made[name]["digest"] for made in _uploaded.values() for name in ("topics", "many")}


async def post(gateway: Gateway, path: str, key: str | None = None, **body: Any) -> httpx.Response:
    async with gateway.http(key) as http:
        return await http.post(path, json=body)


async def answered(gateway: Gateway, path: str, **body: Any) -> Any:
    response = await post(gateway, path, **body)
    assert response.status_code == 200, response.text
    return response.json()


def softmax(*values: float) -> Any:
    powers = [math.exp(value) for value in values]
    return pytest.approx([power / sum(powers) for power in powers])


def sigmoid(value: float) -> Any:
    return pytest.approx(1 / (1 + math.exp(-value)))


async def test_texts_get_labels_in_vllms_shape(gateway: Gateway, versions: dict[str, Any]) -> None:
    async with gateway.http() as http:
        response = await http.post(CLASSIFY, json={"model": "topics@default", "input": [[5], [5] * 4]})
    body = response.json()
    assert body["id"].startswith("classify-")
    assert (body["object"], body["model"], body["labels"]) == ("list", "topics@default", list(LABELS.values()))
    assert body["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    assert [item["index"] for item in body["data"]] == [0, 1]
    assert [item["label"] for item in body["data"]] == ["other", "billing"]
    assert body["data"][0]["probs"] == softmax(1, 1, 2)
    assert body["data"][1]["score"] == body["data"][1]["probs"][0]
    assert {item["num_classes"] for item in body["data"]} == {3}
    async with gateway.openai() as client:
        same: Any = await client.post("/classify", cast_to=object, body={"model": "topics", "input": [[5], [5] * 4]})
    assert same["data"] == body["data"]
    assert response.headers["x-loragate-adapter"] == f"topics:1@{versions['topics']['digest']}"
    assert {submit.pooling for submit in gateway.engine.submits} == {pb.POOLING_CLASSIFY}
    assert all(submit.cache_salt for submit in gateway.engine.submits)


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("topics", {}, softmax(2, 1, 2)),
        ("many", {}, [sigmoid(2), sigmoid(1), sigmoid(2)]),
        ("many", {"use_activation": False}, [2.0, 1.0, 2.0]),
        ("reward", {}, [sigmoid(0.5)]),
        ("value", {}, [0.5]),
    ],
)
async def test_the_activation_follows_the_problem_type(
    gateway: Gateway, model: str, fields: dict[str, Any], expected: Any
) -> None:
    (item,) = (await answered(gateway, CLASSIFY, model=model, input=[[5, 6]], **fields))["data"]
    assert item["probs"] == expected


async def test_large_logits_do_not_overflow(gateway: Gateway) -> None:
    gateway.engine.vector = lambda submit: [1e4, -1e4, 0.0]
    for model, expected in (("topics", [1.0, 0.0, 0.0]), ("many", [1.0, 0.0, 0.5])):
        (item,) = (await answered(gateway, CLASSIFY, model=model, input="x"))["data"]
        assert item["probs"] == expected


async def test_each_token_gets_a_label(gateway: Gateway) -> None:
    (item,) = (await answered(gateway, CLASSIFY, model="names", input="over the lazy"))["data"]
    ids = gateway.engine.tokenizer.encode("over the lazy").ids
    assert [token["token_id"] for token in item["tokens"]] == ids
    assert [token["token"] for token in item["tokens"]] == [gateway.engine.tokenizer.id_to_token(id_) for id_ in ids]
    words = ["over the lazy"[token["start"] : token["end"]] for token in item["tokens"]]
    assert "".join(words) == "over the lazy"
    assert [token["probs"] for token in item["tokens"]] == [softmax(0, id_ / 100) for id_ in ids]
    assert {token["label"] for token in item["tokens"]} == {"PER"}
    assert "label" not in item
    assert gateway.engine.submits[0].pooling == pb.POOLING_CLASSIFY_TOKENS


async def test_the_characters_of_tokens_in_a_text_that_spells_special_ones(gateway: Gateway) -> None:
    text = "a <|im_end|> b </s>"
    (item,) = (await answered(gateway, CLASSIFY, model="names", input=[text]))["data"]
    assert "".join(text[token["start"] : token["end"]] for token in item["tokens"]) == text
    (item,) = (await answered(gateway, CLASSIFY, model="names", input=[[5, 6]]))["data"]
    assert "start" not in item["tokens"][0]


async def test_messages_are_rendered_without_a_prompt_for_an_answer(gateway: Gateway) -> None:
    messages = [{"role": "user", "content": "A question"}, {"role": "assistant", "content": "An answer"}]
    for fields, end in ({}, "<|im_end|>\n"), ({"add_generation_prompt": True}, "<|im_start|>assistant\n"):
        await answered(gateway, CLASSIFY, model="reward", messages=messages, **fields)
        submit = gateway.engine.submits[-1]
        text = gateway.engine.tokenizer.decode(list(submit.prompt_token_ids), skip_special_tokens=False)
        assert text.endswith(end)


async def test_padding_at_the_end_represents_no_text(gateway: Gateway) -> None:
    """transformers' class takes the last token that is no padding; for labels of tokens, all count."""
    prompts = [[5, 7, 6, 7, 7], [7, 7], [5, 6]]
    body = await answered(gateway, CLASSIFY, model="topics", input=prompts)
    assert sorted(list(submit.prompt_token_ids) for submit in gateway.engine.submits) == [[5, 6], [5, 7, 6], [7]]
    assert body["usage"]["prompt_tokens"] == 6
    await answered(gateway, CLASSIFY, model="names", input=[[5, 7, 7]])
    assert list(gateway.engine.submits[-1].prompt_token_ids) == [5, 7, 7]


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
async def test_scores_of_pairs(gateway: Gateway, names: tuple[str, str]) -> None:
    encode = gateway.engine.tokenizer.encode
    first, second = names
    one = await answered(gateway, SCORE, **{"model": "reward", first: "the sun", second: ["A", "stars and the sun"]})
    both = await answered(gateway, SCORE, **{"model": "value", first: ["a", "b c"], second: ["d", "e f"]})
    assert (one["object"], [item["object"] for item in one["data"]]) == ("list", ["score", "score"])
    lengths = [len(encode("the sun", text).ids) for text in ("A", "stars and the sun")]
    assert [item["score"] for item in one["data"]] == [sigmoid(length / 4) for length in lengths]
    assert [item["score"] for item in both["data"]] == [
        len(encode(*pair).ids) / 4 for pair in (("a", "d"), ("b c", "e f"))
    ]
    assert one["usage"]["total_tokens"] == sum(lengths)


@pytest.mark.parametrize("path", [RERANK, RERANK_2])
async def test_documents_are_ranked(gateway: Gateway, path: str) -> None:
    documents: list[Any] = ["sun", {"text": "the quick brown fox jumps"}, "the fox", "dog"]
    body = await answered(gateway, path, model="value", query="fox", documents=documents)
    assert body["results"][0]["index"] == 1
    assert {item["index"] for item in body["results"]} == {0, 1, 2, 3}
    scores = [item["relevance_score"] for item in body["results"]]
    assert scores == sorted(scores, reverse=True)
    assert body["results"][0].get("document") == ({"text": "the quick brown fox jumps"} if path == RERANK else None)
    short = await answered(
        gateway, path, model="value", query="fox", documents=documents, top_n=1, return_documents=path == RERANK_2
    )
    assert [item["index"] for item in short["results"]] == [1]
    assert ("document" in short["results"][0]) is (path == RERANK_2)


async def test_a_reward_model_ranks_answers_in_the_chat_template(gateway: Gateway) -> None:
    body = await answered(
        gateway, RERANK, model="reward", query="A question?", documents=["An answer."], prompt_format="chat"
    )
    text = gateway.engine.tokenizer.decode(list(gateway.engine.submits[-1].prompt_token_ids), skip_special_tokens=False)
    assert text == ("<|im_start|>user\nA question?<|im_end|>\n<|im_start|>assistant\nAn answer.<|im_end|>\n")
    assert len(body["results"]) == 1


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CLASSIFY, {"model": "topics"}, "input"),
        (CLASSIFY, {"model": "topics", "input": "x", "messages": [{"role": "user", "content": "x"}]}, "input"),
        (CLASSIFY, {"model": "topics", "input": "x", "add_generation_prompt": True}, "add_generation_prompt"),
        (CLASSIFY, {"model": "topics", "input": ["a", ""]}, "input"),
        (CLASSIFY, {"model": "topics", "input": [[5] * 257]}, "input"),
        (CLASSIFY, {"model": "topics", "input": ["a"] * 2049}, "input"),
        (CLASSIFY, {"model": "topics", "messages": []}, "messages"),
        (CLASSIFY, {"model": "text", "input": "secret words"}, "model"),
        (CLASSIFY, {"model": MODEL_ID, "input": "secret words"}, "model"),
        (CLASSIFY, {"model": "topics", "input": "x", "labels": ["a"]}, "labels"),
        (SCORE, {"model": "topics", "text_1": "a", "text_2": "b"}, "model"),
        (SCORE, {"model": "names", "text_1": "a", "text_2": "b"}, "model"),
        (SCORE, {"model": "reward", "text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
        (SCORE, {"model": "reward", "text_1": "a"}, "text_1"),
        (SCORE, {"model": "reward", "text_1": "a", "documents": "b"}, "text_1"),
        (SCORE, {"model": "reward", "text_1": "a", "text_2": ["x" * 200_000]}, "text_2"),
        (RERANK, {"model": "reward", "query": "a", "documents": []}, "documents"),
        (RERANK, {"model": "reward", "query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        (RERANK, {"model": "reward", "query": "a", "documents": ["b", ""]}, "documents.1"),
        (RERANK, {"model": "reward", "query": "a", "documents": ["b"], "prompt_format": "raw"}, "prompt_format"),
        (RERANK, {"model": "text", "query": "a", "documents": ["secret words"]}, "model"),
    ],
)
async def test_bad_requests_name_the_field(gateway: Gateway, path: str, body: dict[str, Any], param: str) -> None:
    response = await post(gateway, path, **body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert "secret words" not in response.text
    assert gateway.engine.submits == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}),
    ],
)
async def test_a_classifier_generates_nothing(gateway: Gateway, path: str, body: dict[str, Any]) -> None:
    response = await post(gateway, path, model="topics", **body)
    assert response.status_code == 400, response.text
    assert "/v1/classify" in response.json()["error"]["message"]
    assert gateway.engine.submits == []


async def test_another_tenants_classifier_is_not_found(gateway: Gateway) -> None:
    """The error is that of one that does not exist, and shows no labels."""
    for model in ("topics", "topics:1", "nothing"):
        for path, body in (
            (CLASSIFY, {"input": "x"}),
            (SCORE, {"text_1": "a", "text_2": "b"}),
            (RERANK, {"query": "a", "documents": ["b"]}),
        ):
            response = await post(gateway, path, gateway.other_key, model=model, **body)
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "model_not_found"
            assert "billing" not in response.text
    assert gateway.engine.submits == []


async def test_a_version_shows_its_labels(gateway: Gateway, versions: dict[str, Any]) -> None:
    async with gateway.http() as http:
        shown = {name: (await http.get(f"/v1/adapters/{name}/versions/1")).json()["classifier"] for name in versions}
    assert shown["text"] is None
    assert shown["topics"] == {
        "task": "SEQ_CLS",
        "num_labels": 3,
        "labels": ["billing", "technical", "other"],
        "problem_type": None,
    }
    assert shown["many"]["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert shown["many"]["problem_type"] == "multi_label_classification"
    assert shown["names"]["task"] == "TOKEN_CLS"


async def test_the_probe_of_a_classifier_asks_for_logits(gateway: Gateway, upload: Upload, tmp_path: Any) -> None:
    folder = tiny_model.write_adapter(tmp_path / "probed", labels=2, seed=9)
    files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
    async with gateway.http() as http:
        assert (await http.post("/v1/adapters", data={"name": "probed"}, files=files)).status_code == 201
    assert [submit.pooling for submit in gateway.engine.submits] == [pb.POOLING_CLASSIFY]


async def test_one_failure_fails_the_request_and_ends_the_rest(gateway: Gateway) -> None:
    engine = gateway.engine
    engine.pause_after = 0
    engine.failure = pb.EngineError(code=pb.ERROR_CODE_NON_FINITE, message="scripted")
    engine.fails = lambda submit: list(submit.prompt_token_ids) == [9]
    response = await post(gateway, CLASSIFY, model="topics", input=[[5], [9]])
    assert response.status_code == 500
    assert await engine.aborted.get() in {submit.request_id for submit in engine.submits}


async def test_a_client_that_leaves_aborts_all_of_it(gateway: Gateway) -> None:
    gateway.engine.pause_after = 0
    request = asyncio.create_task(post(gateway, RERANK, model="reward", query="a", documents=["b", "c"]))
    while len(gateway.engine.submits) < 2:
        await asyncio.sleep(0.01)
    request.cancel()
    aborted = {await gateway.engine.aborted.get() for _ in range(2)}
    assert aborted == {submit.request_id for submit in gateway.engine.submits}
    assert await gateway.lifecycle.idle(5)


async def test_the_lines_of_a_batch(gateway: Gateway) -> None:
    lines = [
        request_line("good", CLASSIFY, {"model": "topics", "input": [[5], [5] * 4]}),
        request_line("bad", CLASSIFY, {"model": "text", "input": "x"}),
    ]
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, lines, CLASSIFY))
        output, errors = await results(client, batch.output_file_id), await results(client, batch.error_file_id)
    body = output["good"]["response"]["body"]
    assert [item["label"] for item in body["data"]] == ["other", "billing"]
    assert body["usage"]["prompt_tokens"] == 5
    assert errors["bad"]["response"]["body"]["error"]["code"] == "not_a_classifier"


async def test_grpc_returns_the_same_as_rest(gateway: Gateway) -> None:
    pairs: list[tuple[str, Any, str, dict[str, Any]]] = [
        ("Classify", inference_pb2.ClassifyRequest(model="topics", inputs=["a", "b c"]), CLASSIFY,
         {"model": "topics", "input": ["a", "b c"]}),
        ("Classify", inference_pb2.ClassifyRequest(model="names", input_token_ids=[{"ids": [5, 6]}]), CLASSIFY,
         {"model": "names", "input": [[5, 6]]}),
        ("Score", inference_pb2.ScoreRequest(model="reward", text_1=["a"], text_2=["b", "c d"]), SCORE,
         {"model": "reward", "text_1": "a", "text_2": ["b", "c d"]}),
        ("Rerank", inference_pb2.RerankRequest(model="reward", query="a", documents=["b", "c d"], top_n=1), RERANK,
         {"model": "reward", "query": "a", "documents": ["b", "c d"], "top_n": 1}),
    ]  # fmt: skip
    async with connected(gateway.grpc_target, gateway.key) as client:
        for method, request, path, body in pairs:
            message = await getattr(client.inference, method)(request, metadata=client.metadata)
            expected = await answered(gateway, path, **body)
            assert _shared(MessageToDict(message, preserving_proto_field_name=True)) == _shared(expected)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await client.inference.Classify(
                inference_pb2.ClassifyRequest(model="text", input="x"), metadata=client.metadata
            )
    error = rich_error(failed.value)
    assert (error.status, error.param) == (grpc.StatusCode.INVALID_ARGUMENT, "model")


def _shared(document: Any) -> Any:
    """Return a response without what differs between two of them, and without protobuf's defaults."""
    if isinstance(document, dict):
        kept = {key: _shared(value) for key, value in document.items() if key not in ("id", "created")}
        return {key: value for key, value in kept.items() if value not in (0, "0", "", [])}
    if isinstance(document, list):
        return [_shared(each) for each in document]
    return int(document) if isinstance(document, str) and document.isdigit() else document
