"""Slow work runs outside the event loop: other requests are served meanwhile.

Each test holds a piece of work until another request has been served; on the event loop, none would be. Work that
holds the interpreter would go unnoticed here: see test_long_prompts.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from loragate.gateway.text.base_model import BaseModel
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAIT_SECONDS = 20.0


class Hold:
    """Blocks a function until it is released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.resume = threading.Event()

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any, **options: Any) -> Any:
            self.reached.set()
            assert self.resume.wait(WAIT_SECONDS), "no other request was served"
            return function(*arguments, **options)

        return held


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.resume.set()


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that these prompts exceed, but not by so much that they are rejected unread."""
    monkeypatch.setattr(BaseModel, "max_model_len", 1200)


async def served_meanwhile(gateway: Gateway, hold: Hold, body: dict[str, Any], url: str) -> int:
    """Return the status of `body`, during whose work another request was served."""
    async with gateway.http() as http, gateway.http() as other:
        asked = asyncio.create_task(http.post(url, json=body))
        while not hold.reached.is_set():
            assert not asked.done(), (await asked).text
            await asyncio.sleep(0.01)
        assert (await other.get("/healthz")).status_code == 200
        assert (await other.get("/v1/models")).status_code == 200
        assert not asked.done()
        hold.resume.set()
        answer: httpx.Response = await asked
    return answer.status_code


CHAT = "/v1/chat/completions"
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = [call for i in range(128) for call in [CALL | {"id": f"c{i}"}]]
ANSWERS = [{"role": "tool", "tool_call_id": f"c{i}", "content": ""} for i in range(128)]
LONG_CHATS = {
    "a long message": [{"role": "user", "content": "x " * 8_000}],
    "many messages that say nothing": [{"role": "user", "content": ""}] * 200,
    "calls that say nothing": [{"role": "assistant", "tool_calls": CALLS}, *ANSWERS],
}


@pytest.mark.parametrize("what", LONG_CHATS)
async def test_templates(attacked: Gateway, hold: Hold, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = attacked.services.link.base.chat_template
    monkeypatch.setattr(type(template), "render", hold.before(type(template).render))
    status = await served_meanwhile(attacked, hold, {"model": MODEL_ID, "messages": LONG_CHATS[what]}, CHAT)
    assert status == (400 if what == "a long message" else 200)


async def test_parsing(attacked: Gateway, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    from loragate.gateway.dependencies import json_body

    monkeypatch.setattr(json_body, "validated", hold.before(json_body.validated))
    body = {"model": MODEL_ID, "prompt": "x", "metadata": {"note": "x" * 100_000}, "max_tokens": 1}
    assert await served_meanwhile(attacked, hold, body, "/v1/completions") == 200


async def test_grammars_of_tools(attacked: Gateway, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes of them, where there are many tools with large schemas."""
    from loragate.gateway.generation import prepare as preparing

    monkeypatch.setattr(attacked.services.link.base.chat_template, "takes_tools", True)
    monkeypatch.setattr(preparing, "chat_constraint", hold.before(preparing.chat_constraint))
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"model": MODEL_ID, "messages": [{"role": "user", "content": "x"}], "tools": [tool], "max_tokens": 1}
    assert await served_meanwhile(attacked, hold, body, CHAT) == 200


async def test_large_bodies_do_not_block_prompts(
    attacked: Gateway, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them wait, a long prompt is tokenized."""
    from loragate.gateway.dependencies import json_body

    real = json_body.validated

    def validated(model: Any, document: Any) -> Any:
        return hold.before(real)(model, document) if "metadata" in document else real(model, document)

    monkeypatch.setattr(json_body, "validated", validated)
    large = {"model": MODEL_ID, "prompt": "x", "metadata": {"note": "x" * 100_000}, "max_tokens": 1}
    long = {"model": MODEL_ID, "prompt": "x " * 3000}
    async with attacked.http() as http:
        waiting = [asyncio.create_task(http.post("/v1/completions", json=large)) for _ in range(50)]
        while not hold.reached.is_set():
            await asyncio.sleep(0.01)
        assert (await http.post("/v1/completions", json=long)).status_code == 400
        hold.resume.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_streams_hold_no_database_connection(attacked: Gateway) -> None:
    """More of them than the pool has run at once, and routes that need a connection are served."""
    attacked.engine.pause_after = 1
    body = {"model": MODEL_ID, "prompt": "one two", "max_tokens": 4, "stream": True}
    async with attacked.http() as http:
        running = [asyncio.create_task(http.post("/v1/completions", json=body)) for _ in range(60)]
        while len(attacked.engine.submits) < 60:
            await asyncio.sleep(0.01)
        async with attacked.admin() as admin:
            for _ in range(3):
                assert (await admin.get("/admin/v1/tenants")).status_code == 200
        attacked.engine.resume.set()
        assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
