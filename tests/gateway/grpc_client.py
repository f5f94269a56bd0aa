"""A tenant's gRPC client, and its errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RequestInfo, RetryInfo
from grpc_status import rpc_status

from loragate.v1.adapters_pb2_grpc import AdapterServiceStub
from loragate.v1.batches_pb2_grpc import BatchServiceStub
from loragate.v1.fine_tuning_pb2_grpc import FineTuningServiceStub
from loragate.v1.inference_pb2_grpc import InferenceServiceStub


class Client:
    """All services on one channel; `raw` calls any method with any bytes."""

    def __init__(self, channel: grpc.aio.Channel, key: str | None) -> None:
        self.channel = channel
        self.metadata = () if key is None else (("authorization", f"Bearer {key}"),)
        self.inference: Any = InferenceServiceStub(channel)
        self.adapters: Any = AdapterServiceStub(channel)
        self.batches: Any = BatchServiceStub(channel)
        self.fine_tuning: Any = FineTuningServiceStub(channel)

    async def raw(self, method: str, *messages: bytes) -> list[bytes]:
        """Return all responses.

        One message goes out with the call: rejected while it sends afterwards, grpc.aio sometimes reports INTERNAL.
        """
        if len(messages) == 1:
            call = self.channel.unary_stream(method)(messages[0], metadata=self.metadata)
        else:
            call = self.channel.stream_stream(method)(iter(messages), metadata=self.metadata)
        return [message async for message in call]


@asynccontextmanager
async def connected(target: str, key: str | None, **options: int) -> AsyncIterator[Client]:
    named = [(f"grpc.{name}", value) for name, value in options.items()]
    async with grpc.aio.insecure_channel(target, options=[("grpc.enable_retries", 0), *named]) as channel:
        yield Client(channel, key)


async def code_of(call: Any) -> grpc.StatusCode:
    """Return the status of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


@dataclass
class RichError:
    """An error as a client with google.rpc reads it."""

    status: grpc.StatusCode
    message: str
    code: str
    param: str | None
    violations: list[str]
    retry_seconds: float | None
    request_id: str


def rich_error(error: grpc.aio.AioRpcError) -> RichError:
    status = rpc_status.from_call(error)
    assert status is not None, error
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    found: dict[type, Any] = {}
    for kind in (ErrorInfo, RequestInfo, RetryInfo, BadRequest):
        for detail in status.details:
            if detail.Is(kind.DESCRIPTOR):
                found[kind] = kind()
                detail.Unpack(found[kind])
    info = found[ErrorInfo]
    assert (info.domain, info.reason) == ("loragate", info.metadata["code"].upper())
    return RichError(
        error.code(),
        status.message,
        info.metadata["code"],
        info.metadata.get("param"),
        [violation.field for violation in found.get(BadRequest, BadRequest()).field_violations],
        found[RetryInfo].retry_delay.ToMilliseconds() / 1000 if RetryInfo in found else None,
        found[RequestInfo].request_id,
    )


async def rejection(call: Any) -> RichError:
    """Return the error of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return rich_error(failed.value)
