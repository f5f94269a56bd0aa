"""BatchService over real gRPC: the same as REST."""

import asyncio
from typing import Any

import grpc
import pytest

from loragate.v1 import batches_pb2 as pb
from tests.gateway.batches.batch_files import CHAT, ENDED, chat_line, jsonl
from tests.gateway.grpc.test_inference import as_rest
from tests.gateway.grpc_client import Client, code_of, connected, rejection
from tests.gateway.running_gateway import Gateway

BATCHES = "/v1/batches"


async def ask(client: Client, method: str, request: Any, *more: tuple[str, str]) -> Any:
    return await getattr(client.batches, method)(request, metadata=(*client.metadata, *more))


@pytest.fixture
async def asking(gateway: Gateway) -> pb.CreateBatchRequest:
    async with gateway.http() as http:
        files = {"file": ("a", jsonl([chat_line("one"), chat_line("hot", temperature=9)]))}
        file = (await http.post("/v1/files", data={"purpose": "batch"}, files=files)).json()["id"]
    return pb.CreateBatchRequest(input_file_id=file, endpoint=CHAT, completion_window="24h", metadata={"t": "a"})


async def test_the_response_equals_that_of_rest(
    gateway: Gateway, client: Client, asking: pb.CreateBatchRequest
) -> None:
    once = ("idempotency-key", "k")
    batch = await ask(client, "Create", asking, once)
    assert (await ask(client, "Create", asking, once)).id == batch.id
    wanted = pb.GetBatchRequest(batch_id=batch.id)
    async with asyncio.timeout(20):
        while batch.status not in ENDED:
            await asyncio.sleep(0.02)
            batch = await ask(client, "Get", wanted)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 1, 1)
    listed = await ask(client, "List", pb.ListBatchesRequest(limit=1))
    async with gateway.http() as http:
        for message, path in ((batch, f"{BATCHES}/{batch.id}"), (listed, f"{BATCHES}?limit=1")):
            assert said(as_rest(message)) == said((await http.get(path)).json())


def said(document: Any) -> Any:
    """Return the document without ids, which only one side has, and without what is absent over gRPC."""
    if isinstance(document, dict):
        kept = {name: said(value) for name, value in document.items() if name != "id"}
        return {name: value for name, value in kept.items() if value not in (None, 0, False, {})}
    return [said(item) for item in document] if isinstance(document, list) else document


async def test_errors(gateway: Gateway, client: Client, asking: pb.CreateBatchRequest) -> None:
    asking.completion_window = "soon"
    error = await rejection(ask(client, "Create", asking))
    assert (error.status, error.param) == (grpc.StatusCode.INVALID_ARGUMENT, "completion_window")
    asking.completion_window = "24h"
    batch = await ask(client, "Create", asking)
    async with connected(gateway.grpc_target, gateway.other_key) as other:
        assert (
            await code_of(ask(other, "Cancel", pb.CancelBatchRequest(batch_id=batch.id))) is grpc.StatusCode.NOT_FOUND
        )
        assert not (await ask(other, "List", pb.ListBatchesRequest())).data
