"""Each field of OpenAI's and Anthropic's clients is served, ignored or refused as tests/clients/fields.toml says."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.responses import ResponsesConfig
from loragate.v1 import engine_pb2 as pb
from tests.clients.field_bodies import Body, Place
from tests.clients.field_rows import FIELDS, OWN, ROWS, Row, rows_of
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

TEMPLATE = """{%- if tools %}{{- '<|im_start|>tools\\n' + (tools | tojson) + '<tool_call><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + (message.name or '') + '\\n' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think></think>' }}{%- endif %}
{%- if reasoning_effort %}{{- '(' + reasoning_effort + ')' }}{%- endif %}{%- endif %}"""
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "beta_messages": "/v1/messages",
}
ONLY_ONCE = re.compile(r'"(?:id|item_id|request_id|created|created_at|completed_at)": ?(?:"[^"]*"|\d+)')


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_model.byte_level_tokenizer("<think>", "</think>")


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    async with stub_engine(tokenizer, max_model_len=4096, chat_template=TEMPLATE) as stub:
        stub.respond_with("<think>Who knows?</think>It is fine.")
        yield stub


@dataclass(frozen=True)
class Outcome:
    """What a request led to: the response, without what no two responses share, and the engine's request."""

    status: int
    text: str
    submit: bytes

    @property
    def message(self) -> str:
        """The words of the error."""
        return str(json.loads(self.text)["error"]["message"])


class Sender:
    """Sends requests to a path, each once."""

    def __init__(self, gateway: Gateway, http: httpx.AsyncClient, path: str) -> None:
        self._engine, self._http, self._path = gateway.engine, http, path
        self._known: dict[str, Outcome] = {}

    async def send(self, body: Body) -> Outcome:
        content = json.dumps(body)
        if content not in self._known:
            self._known[content] = await self._send(content)
        return self._known[content]

    async def _send(self, content: str) -> Outcome:
        self._engine.submits.clear()
        headers = {"content-type": "application/json"}
        response = await self._http.post(self._path, content=content, headers=headers)
        submit = pb.Submit()
        for each in self._engine.submits:
            submit.CopyFrom(each)
        submit.ClearField("request_id")
        text = ONLY_ONCE.sub('"":0', response.text)
        return Outcome(response.status_code, text, submit.SerializeToString(deterministic=True))


async def problems(sender: Sender, place: Place, row: Row, values: list[Any]) -> list[str]:
    """Return what is not as the row says."""
    base = await sender.send(place.body(**row.beside))
    outcomes = {repr(value): await sender.send(place.body(value, **row.beside)) for value in values}
    accepted = {repr(value): await sender.send(place.body(value, **row.beside)) for value in row.accepts}
    found = [] if base.status == 200 else [f"without it: {base.text}"]
    if row.status == "refused":
        found += [
            f"{value} is accepted, or refused otherwise: {each.text}"
            for value, each in outcomes.items()
            if each.status != 400 or row.note not in each.message or not names(place, each.message)
        ]
    else:
        found += [f"{value} is refused: {each.text}" for value, each in outcomes.items() if each.status != 200]
    same = outcomes if row.status == "ignored" else accepted
    found += [f"{value} has an effect" for value, each in same.items() if each != base]
    if row.status == "served" and not row.unseen and all(each == base for each in outcomes.values()):
        found.append("no value has an effect")
    return found


async def null_is_absent(sender: Sender, place: Place, row: Row) -> bool:
    return await sender.send(place.body(None, **row.beside)) == await sender.send(place.without(**row.beside))


def names(place: Place, message: str) -> bool:
    """Return whether an error names the place, or something in it or around it."""
    named = re.match(r"Invalid '([^']+)'", message)
    return named is not None and (
        f"{place.param}.".startswith(f"{named[1]}.") or named[1].startswith(f"{place.param}.")
    )


@pytest.mark.parametrize("kind", PATHS)
async def test_each_field_has_its_status(gateway: Gateway, kind: str) -> None:
    wrong = {}
    async with gateway.http() as http:
        sender = Sender(gateway, http, PATHS[kind])
        for field, row in [(field, row) for field in FIELDS[kind] for row in ROWS[kind] if row.matches(field.path)]:
            place = Place(kind, field.path)
            wrong[field.path] = await problems(sender, place, row, row.values(field.samples))
            if not field.required and not field.is_form and not await null_is_absent(sender, place, row):
                wrong[field.path].append("null is not as if it were absent")
        for row in OWN.get(kind, ()):
            wrong[row.pattern] = await problems(sender, Place(kind, row.pattern), row, row.values([]))
    assert not {path: found for path, found in wrong.items() if found}


async def test_counting_tokens_takes_the_same_fields(gateway: Gateway) -> None:
    """The effect of a field shows in the message itself."""
    wrong = {}
    async with gateway.http() as http:
        sender = Sender(gateway, http, "/v1/messages/count_tokens")
        for field in FIELDS["count_tokens"]:
            place = Place("count_tokens", field.path)
            for row in rows_of("count_tokens", field.path):
                wrong[field.path] = await problems(sender, place, replace(row, unseen=True), row.values(field.samples))
    assert not {path: found for path, found in wrong.items() if found}


async def test_batches_and_conversations_take_their_fields(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    async with serving(replace(config, responses=ResponsesConfig(store=True)), engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http:
            form: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", b"{}")}}
            file = (await http.post("/v1/files", **form)).json()["id"]
            batch = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            for kind, base in (("batches", batch), ("conversations", {})):
                for row in [row for row in ROWS[kind] if "." not in row.pattern]:
                    for value in [*([] if row.pattern in base else [None]), *(row.send or ())]:
                        response = await http.post(f"/v1/{kind}", json={**base, row.pattern: value})
                        assert response.status_code == 200, (row.pattern, response.text)
