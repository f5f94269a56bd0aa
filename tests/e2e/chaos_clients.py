"""Clients of the chaos run. Each remembers what it was told in answer to each of its requests."""

import asyncio
import json
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import httpx
import numpy as np

from loragate.v1.inference_pb2 import GenerateRequest, TokenIds
from loragate.v1.inference_pb2_grpc import InferenceServiceStub

from .workers import Tenant

PROMPTS: tuple[tuple[int, ...], ...] = ((5, 9, 13, 21, 200, 7), (40, 41, 42), (7,) * 40)
LENGTHS = (4, 24, 120)
_PATIENCE = 90.0  # seconds; longer is a request that hangs
_TYPED = {429: ("rate_limit_error",), 503: ("server_error",)}


@dataclass(frozen=True)
class Question:
    """The same question has the same answer, whichever way it is asked."""

    what: str  # text, chat or vector
    model: str
    prompt: tuple[int, ...]
    tokens: int

    @property
    def ways(self) -> tuple[str, ...]:
        if self.what == "text":
            return ("completion", "completion stream", "gRPC", "gRPC stream")
        return ("chat", "chat stream") if self.what == "chat" else ("embedding",)


def questions(models: tuple[str, ...]) -> list[Question]:
    texts = [Question("text", model, prompt, length) for model in models for prompt in PROMPTS for length in LENGTHS]
    chats = [Question("chat", model, prompt, 24) for model in models for prompt in PROMPTS]
    vectors = [Question("vector", model, prompt, 0) for model in models for prompt in PROMPTS]
    return texts + chats + vectors


@dataclass
class Told:
    """`usage` are prompt and completion tokens as the answer said them; None where its end was not seen."""

    tenant_id: str
    question: Question
    way: str
    id: str = field(default_factory=lambda: f"chaos_{secrets.token_hex(8)}")
    outcome: str = "left"
    usage: tuple[int, int] | None = None
    pieces: int = 0
    text: str = ""
    vector: list[float] | None = None

    def contradicts(self, calm: "Told") -> bool:
        """What came of the answer is not what came when all was calm."""
        if self.vector is not None:
            return not np.allclose(self.vector, calm.vector, atol=1e-4)
        if self.outcome != "completed":
            return not calm.text.startswith(self.text)
        return (self.text, self.usage) != (calm.text, calm.usage)


class Defect(Exception):
    """An answer that nobody should ever get."""


class Left(Exception):
    """The client has had enough."""


class Client:
    """Of one tenant. `leave_after` so many pieces it hangs up; a whole answer it leaves before it comes."""

    def __init__(self, tenant: Tenant, http: httpx.AsyncClient, channel: grpc.aio.Channel) -> None:
        self._tenant = tenant
        self._http = http
        self._stub: Any = InferenceServiceStub(channel)

    async def ask(self, question: Question, way: str, leave_after: int | None = None) -> Told:
        """Raises Defect."""
        told = Told(self._tenant.id, question, way)
        ask: Mapping[str, Callable[[Told, int | None], Coroutine[Any, Any, None]]] = {
            "completion": self._whole,
            "completion stream": self._stream,
            "chat": self._whole,
            "chat stream": self._stream,
            "embedding": self._whole,
            "gRPC": self._rpc,
            "gRPC stream": self._rpc_stream,
        }
        try:
            async with asyncio.timeout(_PATIENCE):
                await ask[way](told, leave_after)
        except TimeoutError:
            raise Defect(f"{way}: no answer in {_PATIENCE} s") from None
        except Left:
            told.outcome = "left"
        except httpx.TransportError:
            told.outcome = "cut"
        except grpc.aio.AioRpcError as error:
            told.outcome = _rpc_outcome(error)
        return told

    async def _whole(self, told: Told, leave_after: int | None) -> None:
        path, body = _body(told.question)
        sending = asyncio.ensure_future(self._http.post(path, json=body, headers={"x-request-id": told.id}))
        if leave_after is not None:
            await asyncio.wait({sending}, timeout=leave_after / 50)
            if not sending.done():
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                raise Left
        response = await sending
        told.outcome = _outcome(response.status_code, response.content)
        if response.status_code == 200:
            answer = response.json()
            told.usage = (answer["usage"]["prompt_tokens"], answer["usage"].get("completion_tokens", 0))
            if told.way == "embedding":
                told.vector = answer["data"][0]["embedding"]
            else:
                choice = answer["choices"][0]
                told.text = choice["message"]["content"] if "message" in choice else choice["text"]

    async def _stream(self, told: Told, leave_after: int | None) -> None:
        path, body = _body(told.question)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._http.stream("POST", path, json=body, headers={"x-request-id": told.id}) as response:
            if response.status_code != 200:
                told.outcome = _outcome(response.status_code, await response.aread())
                return
            async for line in response.aiter_lines():
                if not line:
                    continue
                data = line.removeprefix("data: ")
                if data == "[DONE]":
                    told.outcome = "completed" if told.usage else _defect("an end without usage")
                    return
                self._take(told, json.loads(data))
                if told.outcome.startswith("error"):
                    return
                if leave_after is not None and told.pieces > leave_after:
                    raise Left
        told.outcome = _defect("a stream that ends in silence")

    def _take(self, told: Told, event: dict[str, Any]) -> None:
        if "error" in event:
            told.outcome = f"error event {event['error']['code']}"
            if event["error"]["code"] not in ("engine_unavailable", "overloaded", "adapter_unavailable"):
                _defect(json.dumps(event))
            return
        if event.get("usage"):
            told.usage = (event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"])
        for choice in event["choices"]:
            piece = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            told.text += piece
            told.pieces += bool(piece)

    def _metadata(self, told: Told) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._tenant.key}"), ("x-request-id", told.id))

    async def _rpc(self, told: Told, leave_after: int | None) -> None:
        call = self._stub.Generate(_message(told.question), metadata=self._metadata(told))
        if leave_after is not None:
            await asyncio.wait({asyncio.ensure_future(call.code())}, timeout=leave_after / 50)
            if not call.done():
                call.cancel()
                raise Left
        answer = await call
        told.text, told.outcome = answer.text, "completed"
        told.usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)

    async def _rpc_stream(self, told: Told, leave_after: int | None) -> None:
        call = self._stub.GenerateStream(_message(told.question), metadata=self._metadata(told))
        async for piece in call:
            told.text += piece.text
            told.pieces += bool(piece.text)
            if piece.HasField("usage"):
                told.usage = (piece.usage.prompt_tokens, piece.usage.completion_tokens)
            elif leave_after is not None and told.pieces > leave_after:
                call.cancel()
                raise Left
        told.outcome = "completed" if told.usage else _defect("an end without usage")


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
    """Refusals are typed, and there are but two kinds of them."""
    if status == 200:
        return "completed"
    error = json.loads(content).get("error", {})
    if error.keys() != {"message", "type", "param", "code"} or error["type"] not in _TYPED.get(status, ()):
        _defect(f"{status} {content.decode()}")
    return f"{status} {error['code']}"


def _rpc_outcome(error: grpc.aio.AioRpcError) -> str:
    """UNAVAILABLE is a cut where no gateway has said so: those come with our request id."""
    said = any(key == "x-request-id" for key, _ in error.trailing_metadata() or ())
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return "503 over gRPC" if said else "cut"
        case grpc.StatusCode.RESOURCE_EXHAUSTED if said:
            return "429 over gRPC"
    return _defect(f"{error.code()} {error.details()}")


def _defect(words: str) -> str:
    raise Defect(words)


@dataclass
class Crowd:
    """Several clients of one tenant, each asking at random, one thing after the other."""

    client: Client
    questions: list[Question]
    random: random.Random
    told: list[Told] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def calm(self) -> dict[Question, Told]:
        """The right answers. Raises Defect for anything else."""
        answers = {}
        for question in self.questions:
            answers[question] = told = await self.client.ask(question, question.ways[0])
            self.told.append(told)
            if told.outcome != "completed":
                _defect(f"{question}: {told.outcome} while all is calm")
        return answers

    async def ask_on(self) -> None:
        """Until it is stopped."""
        while not self.stopping.is_set():
            question = self.random.choice(self.questions)
            leave_after = self.random.randrange(12) if self.random.random() < 0.2 else None
            told = await self.client.ask(question, self.random.choice(question.ways), leave_after)
            self.told.append(told)
            if told.outcome not in ("completed", "left"):
                await asyncio.sleep(self.random.uniform(0, 0.5))
