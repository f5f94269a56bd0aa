"""Files to which lines are appended: all lines of a request or none, until the file is closed."""

import asyncio
from typing import Any

import grpc
import httpx
import pytest

from loragate.v1 import fine_tuning_pb2 as pb
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.grpc_client import Client, connected, rejection
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

LINE = b'{"text": "the sea"}\n'
CHAT = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


async def opened(http: httpx.AsyncClient, content: bytes = b"") -> Any:
    made = await http.post("/v1/files", data={"purpose": "fine-tune", "open": "true"}, files={"file": ("a", content)})
    assert made.status_code == 200, made.text
    return made.json()


async def append(http: httpx.AsyncClient, file: Any, lines: bytes, **headers: str) -> httpx.Response:
    return await http.post(f"/v1/files/{file['id']}/append", files={"data": lines}, headers=headers)


async def content(http: httpx.AsyncClient, file: Any) -> bytes:
    return (await http.get(f"/v1/files/{file['id']}/content")).content


async def test_lines_are_appended_until_the_file_is_closed(gateway: Gateway) -> None:
    async with gateway.http() as http:
        file = await opened(http, LINE.rstrip())
        assert file["open_until"] >= file["created_at"] + 3599
        answers = [await append(http, file, lines) for lines in (2 * LINE, LINE.rstrip(), b"\n" + LINE)]
        assert [answer.json()["bytes"] for answer in answers] == [len(LINE) * n + (n > 4) for n in (3, 4, 5)]
        assert await content(http, file) == 4 * LINE + b"\n" + LINE
        for _ in range(2):
            closed = (await http.post(f"/v1/files/{file['id']}/close")).json()
            assert (closed["open_until"], closed["bytes"]) == (None, 5 * len(LINE) + 1)
        late = await append(http, file, LINE)
        assert (late.status_code, late.json()["error"]["code"]) == (409, "file_closed")
        assert await content(http, file) == 4 * LINE + b"\n" + LINE


async def test_one_bad_line_rejects_all(gateway: Gateway) -> None:
    async with gateway.http() as http:
        file = await opened(http)
        for lines, words in (
            (LINE + b"{\n" + LINE + CHAT, ("Line 2: it is not valid JSON", "Line 4: its format differs")),
            (
                b"".join(b"%d\n" % n for n in range(25)),
                ("Line 1: it must be a JSON object", "later lines were not checked"),
            ),
            (b"\n \n", ("no lines",)),
            (b"\xef\xbb\xbf" + LINE, ("byte order mark",)),
        ):
            rejected = await append(http, file, lines)
            error = rejected.json()["error"]
            assert (rejected.status_code, error["code"], error["param"]) == (400, "invalid_lines", "data")
            assert all(each in error["message"] for each in words), error["message"]
        assert await content(http, file) == b""
        assert (await append(http, file, CHAT)).status_code == 200, "the first good lines say the format"
        other = (await append(http, file, LINE)).json()["error"]
        assert "Line 1: its format differs from that of the first line, which is chat" in other["message"]
        assert await content(http, file) == CHAT


async def test_a_repeated_append_counts_once(gateway: Gateway) -> None:
    async with gateway.http() as http:
        file = await opened(http)
        first, again = [await append(http, file, LINE, **{"idempotency-key": "k"}) for _ in range(2)]
        assert first.json() == again.json()
        other = await append(http, file, 2 * LINE, **{"idempotency-key": "k"})
        assert other.status_code == 409
        assert await content(http, file) == LINE


async def test_of_concurrent_first_lines_in_two_formats_one_wins(gateway: Gateway) -> None:
    async with gateway.http() as http:
        file = await opened(http)
        answers = await asyncio.gather(append(http, file, LINE), append(http, file, CHAT))
        assert sorted(answer.status_code for answer in answers) == [200, 400]
        assert await content(http, file) in (LINE, CHAT)


@pytest.mark.parametrize(
    ("fields", "content", "status", "param"),
    [
        ({"purpose": "adapter", "open": "true"}, b"", 400, "open"),
        ({"purpose": "fine-tune", "open": "yes"}, b"", 400, "open"),
        ({"purpose": "fine-tune", "open": "true"}, b"{}\n", 400, "file"),
        ({"purpose": "fine-tune", "open": "true"}, b" " * (9 << 20), 413, "file"),
    ],
)
async def test_invalid_open_files(
    gateway: Gateway, fields: dict[str, str], content: bytes, status: int, param: str
) -> None:
    async with gateway.http() as http:
        rejected = await http.post("/v1/files", data=fields, files={"file": ("a", content)})
        assert (rejected.status_code, rejected.json()["error"]["param"]) == (status, param)
        assert (await http.get("/v1/files")).json()["data"] == []


async def test_rejected_appends(gateway: Gateway) -> None:
    async with gateway.http() as http:
        file = await opened(http)
        plain = (await http.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", LINE)})).json()
        assert plain["open_until"] is None
        assert (await append(http, plain, LINE)).json()["error"]["code"] == "file_closed"
        assert (await append(http, file, b" " * (9 << 20))).status_code == 413
        assert (await append(http, {"id": "file-x"}, LINE)).status_code == 404
        assert (await http.post(f"/v1/files/{file['id']}/append", data={"data": "x"})).status_code in (400, 415)
        assert (await http.post(f"/v1/files/{file['id']}/append", json={})).status_code == 415
        missing = await http.post(f"/v1/files/{file['id']}/append", files={"other": b"x"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (400, "unexpected_part")
    async with gateway.http(gateway.other_key) as other_tenant:
        assert (await append(other_tenant, file, LINE)).status_code == 404
        assert (await other_tenant.post(f"/v1/files/{file['id']}/close")).status_code == 404


async def test_open_files_over_grpc_are_the_same(gateway: Gateway, client: Client) -> None:
    def ask(method: str, request: Any, *more: tuple[str, str]) -> Any:
        return getattr(client.fine_tuning, method)(request, metadata=(*client.metadata, *more))

    async with gateway.http() as http:
        file = await opened(http)
        lines = pb.AppendToFileRequest(file_id=file["id"], data=2 * LINE)
        answers = [await ask("AppendToFile", lines, ("idempotency-key", "k")) for _ in range(2)]
        assert [answer.bytes for answer in answers] == [2 * len(LINE)] * 2
        bad = await rejection(ask("AppendToFile", pb.AppendToFileRequest(file_id=file["id"], data=b"{}\n")))
        assert (bad.status, bad.code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_lines")
        assert "Line 1" in bad.message
        closed = await ask("CloseFile", pb.CloseFileRequest(file_id=file["id"]))
        assert not closed.HasField("open_until")
        assert closed == pb.FineTuningFile(**(await http.get(f"/v1/files/{file['id']}")).json())
        late = await rejection(ask("AppendToFile", lines))
        assert (late.status, late.code) == (grpc.StatusCode.ABORTED, "file_closed")


async def test_a_job_follows_an_open_file_only_on_request(gateway: Gateway) -> None:
    worker = FakeWorker(gateway)
    async with gateway.http() as http:
        growing, other = await opened(http), await opened(http)
        whole = (await http.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a", LINE)})).json()

        async def job(training_file: str, more: dict[str, Any], **asked: Any) -> Any:
            method = {"type": "supervised", "supervised": {"hyperparameters": asked}}
            body = {"model": MODEL_ID, "training_file": training_file, "method": method, **more}
            return (await http.post("/v1/fine_tuning/jobs", json=body)).json()

        for rejected, param, words in (
            (await job(growing["id"], {}), "training_file", "hyperparameter `streaming`"),
            (await job(whole["id"], {"validation_file": other["id"]}), "validation_file", "/close) first."),
            (await job(growing["id"], {"validation_file": other["id"]}, streaming=True), "validation_file", "open"),
        ):
            assert (rejected["error"]["code"], rejected["error"]["param"]) == ("file_open", param)
            assert words in rejected["error"]["message"]
        made = await job(growing["id"], {}, streaming=True)
        asked = made["method"]["supervised"]["hyperparameters"]
        assert (asked["streaming"], asked["n_steps"], made["progress"]) == (True, None, None)
        await worker.validate()
        running = await worker.train(0)
        await worker.run("progress", running.id, 5, None)
        reported = (await http.get(f"/v1/fine_tuning/jobs/{made['id']}")).json()
        assert (reported["progress"], reported["estimated_finish"]) == ({"step": 5, "total_steps": None}, None)
        assert reported["method"]["supervised"]["hyperparameters"]["lr_scheduler"] == "constant"
        async with connected(gateway.grpc_target, gateway.key) as client:
            request = pb.GetFineTuningJobRequest(fine_tuning_job_id=made["id"])
            progress = (await client.fine_tuning.Get(request, metadata=client.metadata)).progress
        assert (progress.step, progress.HasField("total_steps")) == (5, False)
