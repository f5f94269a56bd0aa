"""JSON that is too large, too deep, repeated or invalid; strings that databases cannot store."""

from collections.abc import Callable

import orjson
import pydantic_core
import pytest
from pydantic import ValidationError

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.grpc.requests import chat_request
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.v1 import inference_pb2 as pb
from tests.attacks.raw_http import exchange, post
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGES = [{"role": "user", "content": "hello"}]
START = b'{"model":"%s","messages":[{"role":"user","content":"hello"}]' % MODEL_ID.encode()
MANY = 600_000


def many(name: bytes, item: bytes) -> bytes:
    return START + b',"%s":[' % name + b",".join([item] * MANY) + b"]}"


NUMBERS = {
    "n": b"1000000000",
    "max_tokens": b"1000000000000000000",
    "max_completion_tokens": b"1e18",
    "seed": b"99999999999999999999999999",
    "temperature": b"1e999",
    "top_p": b"-1e999",
    "top_k": b"2147483648",
    "min_tokens": b"-1",
    "draft_tokens": b"1e3",
    "priority": b"1" + b"0" * 4000,
}


@pytest.mark.parametrize("name", NUMBERS)
async def test_absurd_numbers(attacked: Gateway, name: str) -> None:
    body = START + b',"%s":%s}' % (name.encode(), NUMBERS[name])
    answer = await exchange(attacked, post(attacked, body, "/v1/chat/completions"))
    assert answer.status == 400
    assert orjson.loads(answer.body)["error"]["param"] == name
    assert not attacked.engine.submits


NO_JSON = {
    "NaN": START + b',"temperature":NaN}',
    "Infinity": START + b',"temperature":Infinity}',
    "a number without end": START + b',"seed":' + b"1" * 100_000 + b"}",
    "lists in lists": START + b',"user":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects in objects": START + b',"user":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "half a surrogate pair": START + b',"user":"\\ud800"}',
    "a surrogate as bytes": START + b',"user":"\xed\xa0\x80"}',
    "bytes that are no UTF-8": START + b',"user":"\xff"}',
    "a byte order mark": b"\xef\xbb\xbf" + START + b"}",
    "UTF-16": (START + b"}").decode().encode("utf-16"),
    "a bare NUL": START + b',"user":"\0"}',
    "two documents": START + b"}{}",
    "a comment": START + b"/**/}",
    "nothing": b"",
    "no object": b"[]",
}


@pytest.mark.parametrize("what", NO_JSON)
async def test_invalid_json(attacked: Gateway, what: str) -> None:
    answer = await exchange(attacked, post(attacked, NO_JSON[what], "/v1/chat/completions"))
    assert (answer.status, answer.code) == (400, "invalid_json")


FLOODS: dict[str, Callable[[], bytes]] = {
    "messages": lambda: (
        b'{"model":"x","messages":[' + b",".join([b'{"role":"user","content":""}'] * (MANY // 4)) + b"]}"
    ),
    "messages of nothing": lambda: b'{"model":"x","messages":[' + b",".join([b"{}"] * MANY) + b"]}",
    "fields": lambda: START + b"," + b",".join(b'"x%d":1' % i for i in range(MANY)) + b"}",
    "fields of a message": lambda: START[:-2] + b"," + b",".join(b'"x%d":1' % i for i in range(MANY)) + b"}]}",
    "biases": lambda: START + b',"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(MANY)) + b"}}",
    "stops": lambda: many(b"stop", b'"x"'),
    "stop tokens": lambda: many(b"stop_token_ids", b"1"),
    "tools": lambda: many(b"tools", b"{}"),
    "options": lambda: START + b',"structured_outputs":{"choice":[' + b",".join([b'"x"'] * MANY) + b"]}}",
    "a schema": lambda: (
        START
        + b',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"enum":['
        + b",".join([b'"x"'] * MANY)
        + b"]}}}}"
    ),
    "a number in a schema": lambda: (
        START + b',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"maximum":1e999}}}}'
    ),
    "arguments of the template": lambda: START + b',"chat_template_kwargs":{"x":[' + b",".join([b"0"] * MANY) + b"]}}",
    "a template": lambda: START + b',"chat_template":"{% for i in range(99999) %}{% endfor %}"}',
    "a regex": lambda: START + b',"structured_outputs":{"regex":"' + b"(a+)+" * 100_000 + b'"}}',
    "a grammar": lambda: START + b',"structured_outputs":{"grammar":"' + b"a" * 100_000 + b'"}}',
}
"""Made when they are needed: all together take a second and 100 MB."""


@pytest.mark.parametrize("what", FLOODS)
async def test_floods(attacked: Gateway, what: str) -> None:
    answer = await exchange(attacked, post(attacked, FLOODS[what](), "/v1/chat/completions"))
    assert answer.status == 400
    assert len(answer.body) < 1000
    assert not attacked.engine.submits


@pytest.mark.parametrize("what", ["messages of nothing", "fields", "fields of a message", "tools"])
async def test_the_number_of_validation_errors_is_bounded(what: str) -> None:
    """pydantic reports each: a million findings held the interpreter for seconds."""
    with pytest.raises(ValidationError) as found:
        ChatRequest.model_validate(pydantic_core.from_json(FLOODS[what]()))
    assert found.value.error_count() <= 128


async def test_a_body_over_the_bound(attacked: Gateway) -> None:
    body = START + b',"user":"' + b"x" * attacked.config.max_json_bytes + b'"}'
    assert (await exchange(attacked, post(attacked, body))).status == 413


async def test_of_duplicate_fields_the_last_counts(attacked: Gateway) -> None:
    """For the limits as for the engine."""
    body = START + b',"max_tokens":1,"n":1,"max_tokens":3,"n":2}'
    assert (await exchange(attacked, post(attacked, body, "/v1/chat/completions"))).status == 200
    (submit,) = attacked.engine.submits
    assert (submit.sampling.max_tokens, submit.n) == (3, 2)


async def test_empty_messages_over_grpc(attacked: Gateway) -> None:
    """Each takes two bytes on the wire, and a hundred times that as an object."""
    with pytest.raises(InvalidRequest, match="'messages'"):
        chat_request(b"\x12\x00" * MANY)
    async with connected(attacked.grpc_target, attacked.key) as client:
        flood = pb.ChatRequest(model=MODEL_ID, messages=[{"role": "user", "content": ""}] * 5000)
        error = await rejection(client.inference.Chat(flood, metadata=client.metadata))
        assert error.param == "messages"
