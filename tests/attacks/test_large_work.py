"""Large bodies, files of many lines, uploads of many parts: their work is bounded before it begins, and does not delay
another tenant's."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from loragate.adapter_store.store import Store
from loragate.finetune.data import validation
from loragate.gateway.dependencies import json_body
from loragate.gateway.resilience import tenant_threads
from loragate.v1 import fine_tuning_pb2 as pb
from tests.attacks.raw_http import connected, post
from tests.gateway.grpc_client import connected as grpc_connected
from tests.gateway.grpc_client import rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATIENCE = 20.0
LARGE = {"model": MODEL_ID, "prompt": "x", "metadata": {"note": "x" * 100_000}, "max_tokens": 1}
LINE = b'{"text": "the sea"}\n'
PART = b"x" * 100_000


class Gate:
    """Holds each call of a function for one tenant, whose text is in its arguments, until it is opened."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.opened = threading.Event()
        self.calls = 0

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any, **options: Any) -> Any:
            if self._text in repr(arguments):
                self.calls += 1
                assert self.opened.wait(PATIENCE), "the gate stayed shut"
            return function(*arguments, **options)

        return held

    async def reached(self, calls: int = 1) -> None:
        while self.calls < calls:
            await asyncio.sleep(0.01)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate("attacker")
    yield made
    made.opened.set()


def large(user: str) -> dict[str, Any]:
    return {**LARGE, "user": user}


async def opened_file(http: httpx.AsyncClient) -> str:
    form = {"data": {"purpose": "fine-tune", "open": "true"}, "files": {"file": ("a", b"")}}
    return str((await http.post("/v1/files", **form)).json()["id"])


async def append(http: httpx.AsyncClient, file_id: str, lines: bytes) -> httpx.Response:
    return await http.post(f"/v1/files/{file_id}/append", files={"data": lines})


async def test_a_tenants_large_bodies_leave_a_thread_for_others(
    attacked: Gateway, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "validated", gate.before(json_body.validated))
    async with attacked.http() as http, attacked.http(attacked.other_key) as other:
        flood = [asyncio.create_task(http.post("/v1/completions", json=large("attacker"))) for _ in range(20)]
        await gate.reached()
        async with asyncio.timeout(PATIENCE / 2):
            assert (await other.post("/v1/completions", json=large("other"))).status_code == 200
        gate.opened.set()
        assert {answer.status_code for answer in await asyncio.gather(*flood)} == {200}


async def test_large_bodies_of_clients_that_left_are_not_parsed(
    attacked: Gateway, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "validated", gate.before(json_body.validated))
    async with AsyncExitStack() as stack:
        for _ in range(10):
            connection = await stack.enter_async_context(connected(attacked))
            await connection.send(post(attacked, large("attacker")))
        while attacked.lifecycle.running < 10:
            await asyncio.sleep(0.01)
        await gate.reached()
    assert await attacked.lifecycle.idle(PATIENCE / 2), "those that wait have left, too"
    gate.opened.set()
    async with attacked.http() as http:
        assert (await http.post("/v1/completions", json=large("somebody"))).status_code == 200
    assert gate.calls == 1, "the one that was being parsed already"


async def test_examining_stops_at_twenty_problems(attacked: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB hold 2.8 million lines of two bytes, each of them a problem."""
    examined: list[int] = []
    really = validation.parse_document
    monkeypatch.setattr(validation, "parse_document", lambda line: (examined.append(line.number), really(line))[1])
    async with attacked.http() as http:
        answer = await append(http, await opened_file(http), b"{}\n" * 60_000)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "Line 20: " in message
    assert "Line 21: " not in message
    assert "later lines were not checked" in message
    assert len(examined) == 20


async def test_an_append_has_a_bounded_number_of_lines(attacked: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid ones cost the most."""
    monkeypatch.setattr(validation, "parse_document", lambda line: pytest.fail("a line was read"))
    async with attacked.http() as http:
        answer = await append(http, await opened_file(http), b"\n" * 65_537)
    assert (answer.status_code, answer.json()["error"]["param"]) == (413, "data")
    assert "65536 lines, and this one has 65537" in answer.json()["error"]["message"]


async def test_an_append_leaves_the_interpreter_to_others(attacked: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """65,536 valid lines take a second, in which the event loop had to wait for the interpreter for each token."""
    clock = SimpleNamespace(now=0.0, paused=0.0)
    really = validation.Validator._example

    def example(self: validation.Validator, line: Any) -> Any:
        clock.now += 0.001
        return really(self, line)

    def sleep(seconds: float) -> None:
        clock.paused += seconds

    monkeypatch.setattr(validation.Validator, "_example", example)
    monkeypatch.setattr(tenant_threads, "time", SimpleNamespace(thread_time=lambda: clock.now, sleep=sleep))
    async with attacked.http() as http:
        assert (await append(http, await opened_file(http), LINE * 1000)).status_code == 200
    assert clock.now == pytest.approx(1.0)
    assert clock.paused >= 1.9


async def test_appends_delay_neither_bodies_nor_appends_of_others(
    attacked: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with attacked.http() as http, attacked.http(attacked.other_key) as other:
        mine, theirs = await opened_file(http), await opened_file(other)
        gate = Gate("attacker")
        really = validation.Validator._example
        monkeypatch.setattr(validation.Validator, "_example", gate.before(really))
        flood = [asyncio.create_task(append(http, mine, b'{"text": "attacker"}\n' * 10)) for _ in range(20)]
        await gate.reached()
        async with asyncio.timeout(PATIENCE / 2):
            for each in (http, other):
                assert (await each.post("/v1/completions", json=large("anybody"))).status_code == 200
            assert (await append(other, theirs, LINE * 10)).status_code == 200
        assert gate.calls == 1, "one append of a tenant is examined at a time"
        gate.opened.set()
        assert {answer.status_code for answer in await asyncio.gather(*flood)} == {200}


@pytest.mark.parametrize("over", ["rest", "grpc"])
async def test_appends_of_clients_that_left_are_not_examined(
    attacked: Gateway, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("attacker")
    monkeypatch.setattr(validation.Validator, "_example", gate.before(validation.Validator._example))
    lines = b'{"text": "attacker"}\n' * 10
    async with attacked.http() as http:
        file = await opened_file(http)
        if over == "rest":
            flood = [asyncio.create_task(append(http, file, lines)) for _ in range(5)]
            await gate.reached()
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
        else:
            async with grpc_connected(attacked.grpc_target, attacked.key) as client:
                request = pb.AppendToFileRequest(file_id=file, data=lines)
                calls = [client.fine_tuning.AppendToFile(request, metadata=client.metadata) for _ in range(5)]
                await gate.reached()
                for call in calls:
                    call.cancel()
        assert await attacked.lifecycle.idle(PATIENCE / 2)
        gate.opened.set()
        assert (await append(http, file, LINE)).status_code == 200
        assert (await http.get(f"/v1/files/{file}/content")).content == LINE
    assert gate.calls == 1, "the line that was being examined already"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The parts that were read, by request."""
    found: list[Sequence[str]] = []
    really = Store.read_pieces

    def read_pieces(self: Store, tenant_id: str, pieces: Sequence[str]) -> AsyncIterator[bytes]:
        found.append(pieces)
        return really(self, tenant_id, pieces)

    monkeypatch.setattr(Store, "read_pieces", read_pieces)
    return found


async def uploaded(http: httpx.AsyncClient, parts: int, size: int | None = None) -> tuple[str, list[str]]:
    """An upload's address and its parts."""
    about = {"purpose": "fine-tune", "filename": "a", "mime_type": "text/plain", "bytes": size or parts * len(PART)}
    place = f"/v1/uploads/{(await http.post('/v1/uploads', json=about)).json()['id']}"
    sent = [await http.post(f"{place}/parts", files={"data": PART}) for _ in range(parts)]
    return place, [each.json()["id"] for each in sent]


async def test_parts_are_checked_before_they_are_read(attacked: Gateway, reads: list[Sequence[str]]) -> None:
    """A request of 30 kB that names one part a thousand times would read 64 GiB."""
    async with attacked.http() as http:
        place, (part,) = await uploaded(http, 1, 10 * len(PART))
        for ids in ([part] * 10, [part], [part, "part_x"]):
            refused = await http.post(f"{place}/complete", json={"part_ids": ids, "md5": "0" * 32})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"].startswith("part_ids")
        assert reads == []
        await http.post(f"{place}/cancel")
        refused = await http.post(f"{place}/complete", json={"part_ids": [part], "md5": "0" * 32})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "upload_not_pending")
        assert reads == []


async def test_a_tenant_completes_one_upload_at_a_time(
    attacked: Gateway, reads: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others complete theirs meanwhile, and what a client no longer waits for is not read to its end."""
    go_on = asyncio.Event()
    really = type(attacked.services.file_threads).run
    mine = attacked.tenant_id
    updates = 0

    async def run(self: Any, tenant_id: str, work: Callable[[], Any]) -> Any:
        nonlocal updates
        if tenant_id == mine:
            updates += 1
            await go_on.wait()
        return await really(self, tenant_id, work)

    async with attacked.http() as http, attacked.http(attacked.other_key) as other:
        places = [await uploaded(http, 3) for _ in range(3)]
        theirs, ids = await uploaded(other, 1)
        monkeypatch.setattr(type(attacked.services.file_threads), "run", run)
        asked = [
            asyncio.create_task(http.post(f"{place}/complete", json={"part_ids": ids, "md5": "0" * 32}))
            for place, ids in places
        ]
        while not reads:
            await asyncio.sleep(0.01)
        refused = await other.post(f"{theirs}/complete", json={"part_ids": ids, "md5": "0" * 32})
        assert refused.json()["error"]["code"] == "md5_mismatch"
        assert len(reads) == 2
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert await attacked.lifecycle.idle(PATIENCE / 2)
        go_on.set()
        assert (len(reads), updates) == (2, 1)
        monkeypatch.undo()
        place, ids = places[0]
        assert (await http.post(f"{place}/complete", json={"part_ids": ids})).json()["status"] == "completed"


async def test_a_tenants_completions_count_as_uploads(attacked: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacked.services.upload_limiter, "_max_uploads", 0)
    async with attacked.http() as http:
        answer = await http.post("/v1/uploads/upload_x/complete", json={"part_ids": ["part_x"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_uploads")
    async with grpc_connected(attacked.grpc_target, attacked.key) as client:
        request = pb.AppendToFileRequest(file_id="file-x", data=LINE)
        refused = await rejection(client.fine_tuning.AppendToFile(request, metadata=client.metadata))
        assert refused.code == "too_many_uploads"
