"""The requests that third-party clients sent (tests/clients/) get the status that they got, and responses in form."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter
from tokenizers import Tokenizer

from loragate.v1 import engine_pb2 as pb
from tests.clients.recordings import KEY, recorded
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tools.test_chat import TEMPLATE

ADAPTER, BASE_MODELS = "pirate", ("loragate-demo", "big")  # of the recordings
HELLO, CALL = "Hello yourself.", '<tool_call>\n{{"name": "{name}", "arguments": {{"city": "Oslo"}}}}\n</tool_call>'
WHOLE: dict[str, Any] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/embeddings": CreateEmbeddingResponse,
    "/v1/responses": Response,
}
LAST_EVENT = {"/v1/responses": "response.completed", "/v1/messages": "message_stop"}


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    """Calls the first tool if it gets one, and otherwise says hello."""

    def script(submit: pb.Submit) -> list[int]:
        prompt = tokenizer.decode(list(submit.prompt_token_ids), skip_special_tokens=False)
        tool = re.search(r'<\|im_start\|>tools\n.*?"name": "([^"]+)"', prompt)
        said = CALL.format(name=tool[1]) if tool else HELLO
        return list(tokenizer.encode(said, add_special_tokens=False).ids)

    async with stub_engine(tokenizer, max_model_len=1 << 16, chat_template=TEMPLATE) as stub:
        stub.script = script
        yield stub


async def replayed(gateway: Gateway, http: httpx.AsyncClient, sent: dict[str, Any]) -> httpx.Response:
    headers = {name: value.replace(KEY, gateway.key) for name, value in sent["headers"].items()}
    body = sent["body"]
    if body is not None and body.get("model") in BASE_MODELS:
        body = body | {"model": tiny_model.MODEL_ID}
    content = None if body is None else json.dumps(body).encode()
    return await http.request(sent["method"], sent["path"], headers=headers, content=content)


def check(sent: dict[str, Any], response: httpx.Response) -> None:
    """Raise AssertionError, or pydantic's error, if the response is not what its kind of request gets."""
    path, streams = sent["path"], (sent["body"] or {}).get("stream")
    assert response.status_code == sent["status"], response.text
    if response.is_error:
        assert set(response.json()) == ({"type", "error", "request_id"} if "messages" in path else {"error"})
    elif streams:
        check_events(path, response)
    elif path == "/v1/embeddings" and sent["body"].get("encoding_format") == "base64":
        assert all(isinstance(each["embedding"], str) for each in response.json()["data"])
    elif path in WHOLE:
        TypeAdapter(WHOLE[path]).validate_json(response.content, strict=True)
    elif path == "/v1/messages":
        document = response.json()
        assert (document["type"], document["role"]) == ("message", "assistant")
        assert document["content"]
    else:
        assert {"object", "input_tokens", "status"} & set(response.json())


def check_events(path: str, response: httpx.Response) -> None:
    assert response.headers["content-type"].startswith("text/event-stream")
    data = re.findall(r"^data: (.*)$", response.text, re.MULTILINE)
    if path in LAST_EVENT:
        assert json.loads(data[-1])["type"] == LAST_EVENT[path]
        return
    *chunks, done = data
    assert done == "[DONE]"
    shape = ChatCompletionChunk if path == "/v1/chat/completions" else Completion
    for chunk in chunks:
        TypeAdapter(shape).validate_json(chunk, strict=True)


async def test_recorded_requests(gateway: Gateway, upload: Any) -> None:
    await upload(ADAPTER)
    clients = recorded()
    assert len(clients) >= 5
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        for client, requests in clients.items():
            for number, sent in enumerate(requests):
                response = await replayed(gateway, http, sent)
                try:
                    check(sent, response)
                except Exception as error:
                    error.add_note(f"{client}.json, request {number}")
                    raise
