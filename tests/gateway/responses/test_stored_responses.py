"""Stored responses, as OpenAI's client creates, continues, reads and deletes them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from loragate.adapter_store.responses import conversations, referenced_items, repository
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.responses import ResponsesConfig
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.tiny_model import MODEL_ID

SECRET = "the treasure is under the oak"


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return {"max_model_len": 2048, "chat_template": tiny_model.TOOLS_TEMPLATE}


@pytest.fixture
async def gateway(config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]) -> AsyncIterator[Gateway]:
    config = replace(config, responses=ResponsesConfig(store=True))
    async with serving(config, engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[AsyncOpenAI]:
    gateway.engine.respond_with("It is fine.")
    async with gateway.openai() as client:
        yield client


def prompt(gateway: Gateway) -> str:
    """Return the prompt of the last request to the engine."""
    return gateway.engine.tokenizer.decode(list(gateway.engine.submits[-1].prompt_token_ids))


async def ended(client: AsyncOpenAI, response: Response) -> Response:
    """Return a background response once it has ended."""
    async with asyncio.timeout(30):
        while response.status in ("queued", "in_progress"):
            await asyncio.sleep(0.05)
            response = await client.responses.retrieve(response.id)
    return response


async def test_a_stored_response_is_read_continued_and_deleted(gateway: Gateway, client: AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL_ID, input=SECRET, store=True, metadata={"a": "b"})
    assert await client.responses.retrieve(first.id) == first
    gateway.engine.respond_with("Under the oak.")
    second = await client.responses.create(
        model=MODEL_ID, input="Where is it?", previous_response_id=first.id, instructions="Be brief.", store=True
    )
    said = prompt(gateway)
    assert said.index(SECRET) < said.index("It is fine.") < said.index("Where is it?")
    assert second.previous_response_id == first.id
    items = await client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items.data] == ["message", "message"]
    assert [item.id async for item in items] == [
        item.id async for item in client.responses.input_items.list(second.id, order="asc")
    ]
    newest = (await client.responses.input_items.list(second.id)).data[0]
    assert newest.content[0].text == "Where is it?"  # type: ignore[union-attr]
    counted = await client.responses.input_tokens.count(
        model=MODEL_ID, input="Where is it?", previous_response_id=first.id, instructions="Be brief."
    )
    assert second.usage is not None
    assert counted.input_tokens == second.usage.input_tokens
    third = await client.responses.create(model=MODEL_ID, input="And?", previous_response_id=second.id)
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as gone:
        await client.responses.retrieve(first.id)
    assert (gone.value.code, gone.value.param) == ("response_not_found", "response_id")
    for unknown in (second.id, third.id):  # its beginning is gone; it was never stored
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=MODEL_ID, input="And?", previous_response_id=unknown)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_context_is_bounded(client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await client.responses.create(model=MODEL_ID, input=SECRET, store=True)
    talk = await client.conversations.create(items=[{"role": "user", "content": SECRET}])
    for module in (repository, conversations):
        monkeypatch.setattr(module, "MAX_CONTEXT_BYTES", 100)
    for name, value in (("previous_response_id", first.id), ("conversation", talk.id)):
        field: dict[str, Any] = {name: value}
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=MODEL_ID, input="And?", **field)
        assert (refused.value.code, refused.value.param) == ("context_too_large", name)


async def test_a_stream_is_stored_before_it_ends(gateway: Gateway, client: AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL_ID, input="Hello.", store=True) as stream:
        async for event in stream:
            if event.type == "response.completed":
                assert await client.responses.retrieve(event.response.id) is not None
        final = await stream.get_final_response()
    assert (await client.responses.retrieve(final.id)).output_text == "It is fine."
    with pytest.raises(openai.BadRequestError, match="background=true"):
        await client.responses.retrieve(final.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="background=true"):
        await client.responses.cancel(final.id)


async def test_nothing_is_stored_unless_the_request_or_the_tenant_says_so(
    gateway: Gateway, client: AsyncOpenAI
) -> None:
    async def stored(**fields: Any) -> bool:
        response = await client.responses.create(model=MODEL_ID, input="Hello.", **fields)
        async with gateway.http() as http:
            status = (await http.get(f"/v1/responses/{response.id}")).status_code
        assert status in (200, 404)
        return status == 200

    assert not await stored()
    async with gateway.http() as http:
        assert (await http.patch("/v1/response_store", json={"store_by_default": True})).status_code == 403
    async with gateway.admin() as http:
        made = await http.post(f"/admin/v1/tenants/{gateway.tenant_id}/keys", json={"scopes": ["admin"]})
    async with gateway.http(made.json()["secret"]) as http:
        changed = (await http.patch("/v1/response_store", json={"store_by_default": True})).json()
    assert (changed["store_by_default"], changed["enabled"], changed["responses"]) == (True, True, 0)
    async with asyncio.timeout(30):
        while not await stored():
            await asyncio.sleep(0.2)
    assert not await stored(store=False)


async def test_a_server_that_stores_nothing_says_so(own_gateway: Gateway) -> None:
    asked: list[dict[str, Any]] = [
        {"store": True},
        {"background": True},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
    ]
    async with own_gateway.openai() as client:
        for fields in asked:
            with pytest.raises(openai.BadRequestError, match="not stored here") as refused:
                await client.responses.create(model=MODEL_ID, input="Hello.", **fields)
            assert refused.value.param == next(iter(fields))
        with pytest.raises(openai.BadRequestError, match="not stored here"):
            await client.conversations.create()
    assert own_gateway.engine.submits == []


async def test_a_conversation(gateway: Gateway, client: AsyncOpenAI) -> None:
    talk = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": SECRET}], metadata={"a": "b"}
    )
    answer = await client.responses.create(model=MODEL_ID, input="Where?", conversation=talk.id, store=True, user="ann")
    assert answer.conversation is not None
    assert answer.conversation.id == talk.id
    assert prompt(gateway).index(SECRET) < prompt(gateway).index("Where?")
    await client.responses.create(model=MODEL_ID, input="Sure?", conversation=talk.id)
    said = prompt(gateway)
    assert said.index(SECRET) < said.index("Where?") < said.index("It is fine.") < said.index("Sure?")
    items = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=2)]
    assert len(items) == 5
    added = await client.conversations.items.create(talk.id, items=[{"role": "user", "content": "Bye."}])
    item_id = str(added.data[0].id)
    assert (await client.conversations.items.retrieve(item_id, conversation_id=talk.id)).id == item_id
    await client.conversations.items.delete(item_id, conversation_id=talk.id)
    assert (await client.conversations.update(talk.id, metadata={"c": "d"})).metadata == {"c": "d"}
    async with gateway.http() as http:  # leaves what is not ann's
        assert (await http.delete("/v1/response_store?user=ann")).json()["deleted"] == 1
    items = [item async for item in client.conversations.items.list(talk.id)]
    assert len(items) == 3
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(
            model=MODEL_ID, input="And?", conversation=talk.id, previous_response_id=answer.id
        )
    assert (await client.conversations.delete(talk.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model=MODEL_ID, input="And?", conversation=talk.id)


async def test_items_are_referred_to_by_their_ids(
    gateway: Gateway, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await client.responses.create(model=MODEL_ID, input=SECRET, store=True)
    asked = (await client.responses.input_items.list(first.id)).data[0].id
    assert asked is not None
    own: Any = {"id": "msg-of-a-client", "role": "user", "content": "I live in Rome."}
    talk = await client.conversations.create(items=[own])
    refers: Any = [
        {"type": "item_reference", "id": asked},
        {"type": "item_reference", "id": first.output[0].id},
        {"id": "msg-of-a-client"},
        {"role": "user", "content": "Where is it?"},
    ]
    second = await client.responses.create(model=MODEL_ID, input=refers, store=True)
    said = prompt(gateway)
    assert said.index(SECRET) < said.index("It is fine.") < said.index("in Rome.") < said.index("Where is it?")
    items = (await client.responses.input_items.list(second.id, order="asc")).data
    assert [item.id for item in items[:3]] == [asked, first.output[0].id, "msg-of-a-client"]
    running = await client.responses.create(model=MODEL_ID, input=refers, background=True)
    assert (await ended(client, running)).status == "completed"
    assert prompt(gateway) == said
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as gone:
        await client.responses.create(model=MODEL_ID, input=refers)
    assert (gone.value.param, gone.value.code) == ("input.0.id", "item_not_found")
    assert isinstance(gone.value.body, dict)
    assert gone.value.body["message"] == f"Item with id '{asked}' not found."
    many: Any = [{"id": f"msg-{number}"} for number in range(257)]
    with pytest.raises(openai.BadRequestError, match="256 stored items"):
        await client.responses.create(model=MODEL_ID, input=many)
    monkeypatch.setattr(referenced_items, "MAX_CONTEXT_BYTES", 10)
    with pytest.raises(openai.BadRequestError, match="10 bytes"):
        await client.responses.create(model=MODEL_ID, input=refers[2:])
    with pytest.raises(openai.BadRequestError, match="send the item itself"):
        await client.conversations.items.create(talk.id, items=refers[2:3])


async def test_a_response_in_the_background(gateway: Gateway, client: AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL_ID, input=SECRET, background=True)
    assert (response.status, response.background) == ("queued", True)
    response = await ended(client, response)
    assert (response.status, response.output_text) == ("completed", "It is fine.")
    await client.responses.cancel(response.id)
    assert (await client.responses.retrieve(response.id)).status == "completed"
    usage = await used(gateway)
    assert response.usage is not None
    assert usage == (1, response.usage.output_tokens)
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="nobodys", input="Hello.", background=True)


async def used(gateway: Gateway) -> tuple[int, int]:
    """Return the requests and completion tokens of the tenant's usage."""
    async with gateway.http() as http:
        while True:
            totals = (await http.get("/v1/usage?group_by=endpoint")).json()["data"]
            rows = [row for row in totals if row["requests"]]
            if rows:
                return sum(row["requests"] for row in rows), sum(row["completion_tokens"] for row in rows)
            await asyncio.sleep(0.1)


async def test_a_background_stream_is_resumed(gateway: Gateway, client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model=MODEL_ID, input="Hello.", background=True, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    response_id = events[0].response.id  # type: ignore[union-attr]
    for after in (0, 3, len(events) - 1):
        again = await client.responses.retrieve(response_id, stream=True, starting_after=after)
        assert [event async for event in again] == events[after + 1 :]


async def test_a_background_response_is_cancelled_and_billed(gateway: Gateway, client: AsyncOpenAI) -> None:
    gateway.engine.pause_after = 2
    stream = await client.responses.create(model=MODEL_ID, input="Hello.", background=True, stream=True)
    response_id = ""
    async for event in stream:
        if event.type == "response.created":
            response_id = event.response.id
        if event.type == "response.output_text.delta":
            cancelled = await client.responses.cancel(response_id)
            assert cancelled.status == "cancelled"
    assert response_id
    async with asyncio.timeout(30):
        while not (await client.responses.retrieve(response_id)).output:
            await asyncio.sleep(0.05)
    assert (await client.responses.retrieve(response_id)).status == "cancelled"
    assert (await used(gateway))[0] == 1


async def test_no_route_reaches_another_tenants(gateway: Gateway, client: AsyncOpenAI) -> None:
    response = await client.responses.create(model=MODEL_ID, input=SECRET, store=True, user="ann")
    running = await client.responses.create(model=MODEL_ID, input=SECRET, background=True, stream=False)
    talk = await client.conversations.create(items=[{"role": "user", "content": SECRET}])
    item = (await client.conversations.items.list(talk.id)).data[0].id
    base, own = f"/v1/responses/{response.id}", f"/v1/conversations/{talk.id}"
    ask = {"model": MODEL_ID, "input": "Hello."}
    attempts: list[tuple[str, str, Any, int]] = [
        ("GET", base, None, 404),
        ("GET", f"{base}?stream=true", None, 404),
        ("GET", f"{base}/input_items", None, 404),
        ("POST", f"/v1/responses/{running.id}/cancel", None, 404),
        ("DELETE", base, None, 404),
        ("POST", "/v1/responses", {**ask, "previous_response_id": response.id}, 400),
        ("POST", "/v1/responses", {**ask, "conversation": talk.id}, 404),
        ("POST", "/v1/responses/input_tokens", {**ask, "conversation": talk.id}, 404),
        ("POST", "/v1/responses", {**ask, "input": [{"type": "item_reference", "id": response.output[0].id}]}, 404),
        ("POST", "/v1/responses", {**ask, "input": [{"id": item}]}, 404),
        ("GET", own, None, 404),
        ("POST", own, {"metadata": {}}, 404),
        ("GET", f"{own}/items", None, 404),
        ("POST", f"{own}/items", {"items": [{"role": "user", "content": "x"}]}, 404),
        ("GET", f"{own}/items/{item}", None, 404),
        ("DELETE", f"{own}/items/{item}", None, 404),
        ("DELETE", own, None, 404),
        ("DELETE", "/v1/response_store?user=ann", None, 200),
        ("GET", "/v1/responses", None, 200),
        ("GET", "/v1/response_store/export", None, 200),
        ("GET", "/v1/response_store", None, 200),
    ]
    async with gateway.http(gateway.other_key) as http:
        for method, path, body, status in attempts:
            found = await http.request(method, path, json=body)
            assert found.status_code == status, (method, path, found.text)
            assert "treasure" not in found.text
            assert response.id not in found.text
    assert (await client.responses.retrieve(response.id)).output_text
    lines = await exported(gateway.http())
    assert {line["object"] for line in lines} == {"response.export", "conversation.export"}
    assert sum(SECRET in json.dumps(line["input"]) for line in lines if "input" in line) == 2
    assert lines[-1]["items"][0]["content"][0]["text"] == SECRET


async def exported(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    async with http:
        return [json.loads(line) for line in (await http.get("/v1/response_store/export")).text.splitlines()]


async def test_no_content_reaches_logs_or_the_database(
    gateway: Gateway, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("DEBUG")
    gateway.engine.respond_with("A whispered answer.")
    await client.responses.create(model=MODEL_ID, input=SECRET, store=True, user="ann-of-acme")
    await ended(client, await client.responses.create(model=MODEL_ID, input=SECRET, background=True))
    item: Any = {"id": "msg-ann-of-acme", "role": "user", "content": SECRET}
    talk = await client.conversations.create(items=[item], metadata={"note": SECRET})
    found = await client.conversations.items.retrieve("msg-ann-of-acme", conversation_id=talk.id)
    assert found.id == "msg-ann-of-acme"
    async with gateway.http() as http:
        assert (await http.delete("/v1/response_store?user=ann-of-acme")).json()["deleted"] == 1
    async with gateway.admin() as http:
        audit = (await http.get("/admin/v1/audit")).text
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"stored_responses" in files
    ours = [record for record in caplog.records if not record.name.startswith(("openai", "http"))]  # not the client's
    logs = "\n".join(record.getMessage() for record in ours)
    assert "loragate" in " ".join(record.name for record in ours)
    seen = f"{logs}{audit}".encode() + files
    assert b"resp_" in seen
    for text in (b"treasure", b"whispered", b"ann-of-acme"):
        assert text not in seen


async def test_all_fields_reach_the_background(gateway: Gateway, client: AsyncOpenAI) -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool: Any = {"type": "function", "name": "weather", "parameters": place}
    fields: dict[str, Any] = {
        "tools": [{"type": "namespace", "name": "outside", "description": "", "tools": [tool]}],
        "tool_choice": "auto",
        "text": {"format": {"type": "json_schema", "name": "place", "schema": place}},
        "reasoning": {"effort": "low"},
        "instructions": "Be brief.",
        "temperature": 0.5,
        "max_output_tokens": 8,
        "metadata": {"a": "b"},
        "include": ["message.output_text.logprobs"],
    }
    gateway.engine.respond_with('{"city": "Oslo"}')
    direct = await client.responses.create(model=MODEL_ID, input="Where?", **fields)
    later = await ended(
        client, await client.responses.create(model=MODEL_ID, input="Where?", background=True, **fields)
    )
    first, second = gateway.engine.submits[-2:]
    first.request_id = second.request_id
    assert first == second
    own = {"id", "created_at", "completed_at", "background", "store", "output", "usage"}
    assert direct.model_dump(exclude=own) == later.model_dump(exclude=own)
    assert (direct.output_text, direct.status) == (later.output_text, later.status)
