"""Batches, as OpenAI's client creates, follows, cancels and reads them."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.gateway.batches.batch_files import CHAT, chat_line, create, ended, jsonl, request_line, results
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID


async def test_each_line_has_its_result(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    lines = [chat_line(f"line-{number}") for number in range(40)]
    async with gateway.openai() as client:
        batch = await create(client, lines, metadata={"team": "a"})
        assert batch.status == "validating"
        batch = await ended(client, batch)
        assert (batch.status, batch.errors, batch.error_file_id, batch.metadata) == (
            "completed",
            None,
            None,
            {"team": "a"},
        )
        assert batch.request_counts is not None
        assert batch.request_counts.model_dump() == {"total": 40, "completed": 40, "failed": 0}
        assert batch.in_progress_at
        assert batch.finalizing_at
        assert batch.completed_at
        output = await results(client, batch.output_file_id)
        assert output.keys() == {line["custom_id"] for line in lines}
        for line in output.values():
            assert line["error"] is None
            assert line["response"]["status_code"] == 200
            answer = ChatCompletion.model_validate(line["response"]["body"])
            assert answer.choices[0].message.content == "Yes."
        file = await client.files.retrieve(batch.output_file_id or "")
        assert (file.purpose, file.filename) == ("batch_output", f"{batch.id}_output.jsonl")
        assert [each.id async for each in client.batches.list()] == [batch.id]


@pytest.mark.parametrize(
    ("endpoint", "body", "shape"),
    [
        ("/v1/completions", {"prompt": "Once", "max_tokens": 4}, Completion),
        ("/v1/responses", {"input": "Hello.", "max_output_tokens": 16}, Response),
        ("/v1/embeddings", {"input": ["one", "two"]}, CreateEmbeddingResponse),
    ],
)
async def test_each_endpoint(gateway: Gateway, endpoint: str, body: dict[str, Any], shape: Any) -> None:
    line = request_line("only", endpoint, {"model": MODEL_ID, **body})
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, [line], endpoint))
        output = await results(client, batch.output_file_id)
    assert batch.status == "completed"
    shape.model_validate(output["only"]["response"]["body"])


async def test_a_line_fails_alone(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    lines = [
        chat_line("good"),
        chat_line("hot", temperature=9),
        chat_line("streamed", stream=True),
        chat_line("nobodys", model="nobodys"),
    ]
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, lines))
        output, errors = await results(client, batch.output_file_id), await results(client, batch.error_file_id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 3)
    assert output.keys() == {"good"}
    rejected = {
        name: (line["response"]["status_code"], line["response"]["body"]["error"]) for name, line in errors.items()
    }
    assert {name: (status, error["param"]) for name, (status, error) in rejected.items()} == {
        "hot": (400, "temperature"),
        "streamed": (400, "stream"),
        "nobodys": (404, "model"),
    }


async def test_the_problems_of_a_file(gateway: Gateway) -> None:
    lines: list[Any] = [
        chat_line("one"),
        "{",
        chat_line("one"),
        chat_line("two") | {"method": "GET"},
        chat_line("three") | {"url": "/v1/embeddings"},
        chat_line("four") | {"body": "text"},
        request_line("five", CHAT, {"messages": []}),
        chat_line(""),
    ]
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, lines))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert batch.failed_at
    assert batch.errors is not None
    assert [(each.line, each.code, each.param) for each in batch.errors.data or []] == [
        (2, "invalid_json_line", None),
        (3, "duplicate_custom_id", "custom_id"),
        (4, "invalid_method", "method"),
        (5, "mismatched_url", "url"),
        (6, "invalid_body", "body"),
        (7, "missing_required_parameter", "body.model"),
        (8, "invalid_custom_id", "custom_id"),
    ]
    assert gateway.engine.submits == []


async def test_no_more_than_twenty_problems_are_reported(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        batch = await ended(client, await create(client, ["[]"] * 30))
        empty = await ended(client, await create(client, ["", " "]))
    assert batch.errors is not None
    assert [each.line for each in batch.errors.data or []] == list(range(1, 21))
    assert empty.errors is not None
    assert [each.code for each in empty.errors.data or []] == ["empty_file"]


async def test_bad_requests_name_the_field(gateway: Gateway) -> None:
    async with gateway.openai() as client:
        file = await client.files.create(file=("requests.jsonl", jsonl([chat_line("one")])), purpose="batch")
        other = await client.files.create(file=("data.jsonl", b"{}\n"), purpose="fine-tune")
        good: dict[str, Any] = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
        for change, param in (
            ({"input_file_id": "file-none"}, "input_file_id"),
            ({"input_file_id": other.id}, "input_file_id"),
            ({"endpoint": "/v1/moderations"}, "endpoint"),
            ({"completion_window": "31d"}, "completion_window"),
            ({"completion_window": "soon"}, "completion_window"),
        ):
            with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
                await client.batches.create(**good | change)
            assert caught.value.param == param
        with pytest.raises(openai.NotFoundError):
            await client.batches.retrieve("batch_none")


async def test_a_cancelled_batch_keeps_what_it_has(gateway: Gateway) -> None:
    gateway.engine.respond_with("Yes.")
    gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    gateway.engine.pause_after = 0
    lines = [chat_line(f"done-{n}") for n in range(5)] + [chat_line("held", seed=7)]
    async with gateway.openai() as client:
        batch = await create(client, lines)
        async with asyncio.timeout(30):
            while batch.request_counts is None or batch.request_counts.completed < 5:
                await asyncio.sleep(0.02)
                batch = await client.batches.retrieve(batch.id)
        batch = await client.batches.cancel(batch.id)
        assert batch.status == "cancelling"
        batch = await ended(client, batch)
        assert batch.status == "cancelled"
        assert batch.cancelled_at
        assert (await results(client, batch.output_file_id)).keys() == {f"done-{n}" for n in range(5)}
        assert (await client.batches.cancel(batch.id)).status == "cancelled"
    assert await gateway.engine.aborted.get()
