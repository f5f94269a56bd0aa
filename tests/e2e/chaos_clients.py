"""Clients of the chaos run; each records the response to each of its requests."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import httpx

from loragate.v1.inference_pb2 import GenerateRequest, TokenIds
from loragate.v1.inference_pb2_grpc import InferenceServiceStub

from .chaos_records import Question, RequestRecord
from .workers import Tenant

_TIMEOUT_SECONDS = 90.0  # seconds; a request that takes longer hangs
_TYPED = {401: ("invalid_request_error",), 429: ("rate_limit_error",), 503: ("server_error",)}


class Defect(Exception):
    """A response that no client should ever get."""


class Disconnected(Exception):
    """The client disconnected."""


class Client:
    """A client of one tenant.

    It disconnects after `leave_after` pieces of a stream, or before a response that is not streamed.
    """

    def __init__(self, tenant: Tenant, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self._tenant = tenant
        self._http = http
        self._stub: Any = InferenceServiceStub(channel)

    async def ask(self, question: Question, interface: str, leave_after: int | None = None) -> RequestRecord:
        """Send the question through one interface and record the response. Raise Defect if it is wrong."""
        record = RequestRecord(self._tenant.id, self._tenant.key_id, question, interface)
        send: Mapping[str, Callable[[RequestRecord, int | None], Coroutine[Any, Any, None]]] = {
            "completion": self._whole,
            "completion stream": self._stream,
            "chat": self._whole,
            "chat stream": self._stream,
            "embedding": self._whole,
            "gRPC": self._rpc,
            "gRPC stream": self._rpc_stream,
        }
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await send[interface](record, leave_after)
        except TimeoutError:
            raise Defect(f"{interface}: no response in {_TIMEOUT_SECONDS} s") from None
        except Disconnected:
            record.outcome = "disconnected"
        except httpx.TransportError:
            record.outcome = "cut"
        except grpc.aio.AioRpcError as error:
            record.outcome = _rpc_outcome(error)
        record.ended = time.time()
        return record

    async def _whole(self, record: RequestRecord, leave_after: int | None) -> None:
        path, body = _body(record.question)
        sending = asyncio.ensure_future(self._http.post(path, json=body, headers={"x-request-id": record.id}))
        if leave_after is not None:
            await asyncio.wait({sending}, timeout=leave_after / 50)
            if not sending.done():
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                raise Disconnected
        response = await sending
        record.outcome = _outcome(response.status_code, response.content)
        if response.status_code == 200:
            answer = response.json()
            record.usage = (answer["usage"]["prompt_tokens"], answer["usage"].get("completion_tokens", 0))
            if record.interface == "embedding":
                record.vector = answer["data"][0]["embedding"]
            else:
                choice = answer["choices"][0]
                record.text = choice["message"]["content"] if "message" in choice else choice["text"]

    async def _stream(self, record: RequestRecord, leave_after: int | None) -> None:
        path, body = _body(record.question)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._http.stream("POST", path, json=body, headers={"x-request-id": record.id}) as response:
            if response.status_code != 200:
                record.outcome = _outcome(response.status_code, await response.aread())
                return
            async for line in response.aiter_lines():
                if not line:
                    continue
                data = line.removeprefix("data: ")
                if record.outcome == "completed":
                    _defect(f"after the end of a stream: {data}")
                if data == "[DONE]":
                    record.outcome = "completed" if record.usage else _defect("end of stream without usage")
                    continue
                self._take(record, json.loads(data))
                if record.outcome.startswith("error"):
                    return
                if leave_after is not None and record.pieces > leave_after:
                    raise Disconnected
        if record.outcome != "completed":
            _defect("stream without an end event")

    def _take(self, record: RequestRecord, event: dict[str, Any]) -> None:
        if "error" in event:
            record.outcome = f"error event {event['error']['code']}"
            if event["error"]["code"] not in ("engine_unavailable", "overloaded", "adapter_unavailable"):
                _defect(json.dumps(event))
            return
        if event.get("usage"):
            record.usage = (event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"])
        for choice in event["choices"]:
            piece = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            record.text += piece
            record.pieces += bool(piece)
            record.ends += bool(choice["finish_reason"])

    def _metadata(self, record: RequestRecord) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._tenant.key}"), ("x-request-id", record.id))

    async def _rpc(self, record: RequestRecord, leave_after: int | None) -> None:
        call = self._stub.Generate(_message(record.question), metadata=self._metadata(record))
        if leave_after is not None:
            await asyncio.wait({asyncio.ensure_future(call.code())}, timeout=leave_after / 50)
            if not call.done():
                call.cancel()
                raise Disconnected
        answer = await call
        record.text, record.outcome = answer.text, "completed"
        record.usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)

    async def _rpc_stream(self, record: RequestRecord, leave_after: int | None) -> None:
        call = self._stub.GenerateStream(_message(record.question), metadata=self._metadata(record))
        async for piece in call:
            record.text += piece.text
            record.pieces += bool(piece.text)
            record.ends += sum(bool(choice.finish_reason) for choice in piece.choices)
            if piece.HasField("usage"):
                record.usage = (piece.usage.prompt_tokens, piece.usage.completion_tokens)
            elif leave_after is not None and record.pieces > leave_after:
                call.cancel()
                raise Disconnected
        record.outcome = "completed" if record.usage else _defect("end of stream without usage")


def _body(question: Question) -> tuple[str, dict[str, Any]]:
    if question.what == "vector":
        return "/v1/embeddings", {"model": question.model, "input": list(question.prompt)}
    fields = {"model": question.model, "max_tokens": question.tokens, "temperature": 0, "ignore_eos": True}
    if question.what == "chat":
        words = " ".join(map(str, question.prompt))
        return "/v1/chat/completions", fields | {"messages": [{"role": "user", "content": words}]}
    return "/v1/completions", fields | {"prompt": list(question.prompt)}


def _message(question: Question) -> GenerateRequest:
    return GenerateRequest(
        model=question.model,
        prompt_token_ids=[TokenIds(ids=question.prompt)],
        max_tokens=question.tokens,
        temperature=0,
        ignore_eos=True,
    )


def _outcome(status: int, content: bytes) -> str:
    """Return the outcome of a status. Raise Defect unless an error is a typed 401, 429 or 503."""
    if status == 200:
        return "completed"
    error = json.loads(content).get("error", {})
    if error.keys() != {"message", "type", "param", "code"} or error["type"] not in _TYPED.get(status, ()):
        _defect(f"{status} {content.decode()}")
    return f"{status} {error['code']}"


def _rpc_outcome(error: grpc.aio.AioRpcError) -> str:
    """Return the outcome of a gRPC error.

    UNAVAILABLE without our request id does not come from a gateway: the connection was cut.
    """
    from_gateway = any(key == "x-request-id" for key, _ in error.trailing_metadata() or ())
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return "503 over gRPC" if from_gateway else "cut"
        case grpc.StatusCode.RESOURCE_EXHAUSTED if from_gateway:
            return "429 over gRPC"
        case grpc.StatusCode.UNAUTHENTICATED if from_gateway:
            return "401 over gRPC"
    return _defect(f"{error.code()} {error.details()}")


def _defect(message: str) -> str:
    raise Defect(message)


@dataclass
class Crowd:
    """Several clients of one tenant, each of which sends random questions one after the other."""

    client: Client
    questions: list[Question]
    random: random.Random
    records: list[RequestRecord] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def baseline(self) -> dict[Question, RequestRecord]:
        """Record the responses without faults. Raise Defect unless all are complete."""
        answers = {}
        for question in self.questions:
            answers[question] = record = await self.client.ask(question, question.interfaces[0])
            self.records.append(record)
            if record.outcome != "completed":
                _defect(f"{question}: {record.outcome} without faults")
        return answers

    async def run(self) -> None:
        """Send questions until stopped."""
        while not self.stopping.is_set():
            question = self.random.choice(self.questions)
            leave_after = self.random.randrange(12) if self.random.random() < 0.2 else None
            record = await self.client.ask(question, self.random.choice(question.interfaces), leave_after)
            self.records.append(record)
            if record.outcome not in ("completed", "disconnected"):
                await asyncio.sleep(self.random.uniform(0, 0.5))
