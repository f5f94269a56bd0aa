"""A server with several gateway workers, and tenants whose requests reach all of them."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import grpc
import grpc.aio
import httpx
import psutil
from private_postgres import private_postgres
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.parser import text_string_to_metric_families
from redis_server import RedisServer
from running_server import RunningServer, ok, until

from loragate.v1.inference_pb2 import GenerateRequest, TokenIds
from loragate.v1.inference_pb2_grpc import InferenceServiceStub

T = TypeVar("T")

MODEL = "tiny-llama"
PROMPT = [5, 9, 13, 21, 200, 7]
TOKENS = 12  # completion tokens of each response; its prompt has len(PROMPT)
LONG = {"model": MODEL, "prompt": PROMPT, "max_tokens": 490, "ignore_eos": True, "stream": True}


@dataclass(frozen=True)
class Workers:
    """A server with several gateway workers, which creates a tenant for each caller."""

    server: RunningServer
    redis: RedisServer
    names: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    @property
    def pids(self) -> list[int]:
        pids: list[int] = self.server.runtime["pids"]["gateway"]
        return pids

    def tenant(self, **limits: int) -> "Tenant":
        with self.server.admin() as admin:
            created = ok(admin.post("/admin/v1/tenants", json={"name": f"t{next(self.names)}", "limits": limits}))
            key = ok(admin.post(f"/admin/v1/tenants/{created['id']}/keys"))["secret"]
        return Tenant(self, created["id"], key)

    def answered(self) -> Counter[int]:
        """Return the number of completion requests over REST and gRPC by worker."""
        folder = self.server.data_dir / "gateway-metrics"
        found: Counter[int] = Counter()
        for pid in self.pids:
            for key, value, _, _ in MmapedDict.read_all_values_from_file(str(folder / f"counter_{pid}.db")):
                labels = json.loads(key)[2]
                if labels.get("route") == "/v1/completions" or "Generate" in labels.get("method", ""):
                    found[pid] += int(value)
        return found

    async def undisturbed(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Repeat `work` until Redis responded to each worker in time, and return its result.

        On a busy machine Redis may be late; then each worker decides alone, which other tests cover.
        """
        while True:
            before = self.metrics()["loragate_limits_local_decisions_total"]
            found = await work()
            if self.metrics()["loragate_limits_local_decisions_total"] == before:
                return found

    def worker_of(self, response: httpx.Response) -> int:
        """Return the process at the other end of the response's connection."""
        _, port = response.extensions["network_stream"].get_extra_info("client_addr")
        [pid] = [pid for pid in self.pids if port in _remote_ports(pid)]
        return pid

    def in_flight(self) -> float:
        """Return the requests and calls in flight, without this scrape."""
        metrics = self.metrics()
        return metrics["loragate_http_requests_in_flight"] + metrics["loragate_grpc_calls_in_flight"] - 1

    def metrics(self) -> dict[str, float]:
        """Return the sums over all labels by metric name."""
        sums: dict[str, float] = {}
        with self.server.admin() as http:  # without the key, the page may be a second old
            text = http.get("/metrics").raise_for_status().text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums


@dataclass(frozen=True)
class Tenant:
    workers: Workers
    id: str
    key: str

    @property
    def key_id(self) -> str:
        return self.key.split("-")[1]

    def another_key(self) -> "Tenant":
        """Return the tenant with a new key."""
        with self.workers.server.admin() as admin:
            return replace(self, key=ok(admin.post(f"/admin/v1/tenants/{self.id}/keys"))["secret"])

    @asynccontextmanager
    async def rest(self) -> AsyncIterator[httpx.AsyncClient]:
        """Open a client that uses a new connection for each request, so that any worker may accept it."""
        headers = {"authorization": f"Bearer {self.key}"}
        no_keepalive = httpx.Limits(max_keepalive_connections=0)
        base_url = self.workers.server.base_url
        async with httpx.AsyncClient(base_url=base_url, headers=headers, limits=no_keepalive, timeout=120) as client:
            yield client

    def channel(self) -> grpc.aio.Channel:
        """Return a channel with its own connection, so that any worker may accept it."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(self.workers.server.runtime["grpc_target"], options=options)

    async def complete(self) -> bool:
        """Send a completion over REST; return whether it was admitted."""
        async with self.rest() as client:
            body = {"model": MODEL, "prompt": PROMPT, "max_tokens": TOKENS, "ignore_eos": True}
            response = await client.post("/v1/completions", json=body)
        assert response.status_code in (200, 429), response.text
        return response.status_code == 200

    async def generate(self) -> bool:
        """Send a completion over gRPC; return whether it was admitted."""
        async with self.channel() as channel:
            stub: Any = InferenceServiceStub(channel)
            try:
                await stub.Generate(_request(max_tokens=TOKENS), metadata=(("authorization", f"Bearer {self.key}"),))
            except grpc.aio.AioRpcError as error:
                return _expect_rejection(error)
        return True

    async def admitted(self, requests: int) -> int:
        """Send concurrent requests, half of them over gRPC; return how many were admitted."""
        calls = [self.generate() if i % 2 else self.complete() for i in range(requests)]
        return sum(await asyncio.gather(*calls))

    async def most_at_once(self, requests: int) -> int:
        """Open concurrent long streams; return how many were admitted."""

        async def burst() -> int:
            until(lambda: not self.leases())
            async with AsyncExitStack() as held:
                return await self.hold(held, requests)

        return await self.workers.undisturbed(burst)

    def leases(self) -> int:
        """Return the number of leases in Redis."""
        with self.workers.redis.client() as redis:
            held = redis.hgetall(f"loragate:limits:{{{self.id}}}:leases")
        return sum(bool(value) for name, value in held.items() if name != b"born")

    async def hold(self, held: AsyncExitStack, requests: int) -> int:
        """Open concurrent long streams, which last until `held` is closed; return how many were admitted."""
        client = await held.enter_async_context(self.rest())
        channel = await held.enter_async_context(self.channel())
        opened = [
            self._streams_over_grpc(channel, held) if i % 2 else self._streams(client, held) for i in range(requests)
        ]
        return sum(await asyncio.gather(*opened))

    async def _streams(self, client: httpx.AsyncClient, held: AsyncExitStack) -> bool:
        response = await held.enter_async_context(client.stream("POST", "/v1/completions", json=LONG | {"n": 16}))
        assert response.status_code in (200, 429)
        return response.status_code == 200

    async def _streams_over_grpc(self, channel: grpc.aio.Channel, held: AsyncExitStack) -> bool:
        stub: Any = InferenceServiceStub(channel)
        request = _request(max_tokens=LONG["max_tokens"], n=16)
        call = stub.GenerateStream(request, metadata=(("authorization", f"Bearer {self.key}"),))
        held.callback(call.cancel)
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            return _expect_rejection(error)
        return True

    async def loses_its_worker(self) -> tuple[int, int]:
        """Kill a stream's worker; return its pid and the number of events received."""
        received = worker = 0
        async with self.rest() as client:
            try:
                async with client.stream("POST", "/v1/completions", json=LONG) as response:
                    worker = self.workers.worker_of(response)
                    async for line in response.aiter_lines():
                        received += line.startswith("data: ")
                        if received == 3:
                            os.kill(worker, signal.SIGKILL)
            except httpx.RemoteProtocolError:
                return worker, received
        raise AssertionError("the stream completed")

    def usage_of(self, requests: int) -> tuple[int, int]:
        """Wait for `requests` requests in the ledger; return the requests and completion tokens."""
        until(lambda: self.usage()["requests"] >= requests)
        usage = self.usage()
        return usage["requests"], usage["completion_tokens"]

    def usage(self) -> dict[str, int]:
        headers = {"authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=self.workers.server.base_url, headers=headers, timeout=60) as http:
            totals: dict[str, int] = ok(http.get("/v1/usage"))["totals"]
        return totals


def _request(**fields: int) -> GenerateRequest:
    return GenerateRequest(model=MODEL, prompt_token_ids=[TokenIds(ids=PROMPT)], ignore_eos=True, **fields)


def _expect_rejection(error: grpc.aio.AioRpcError) -> bool:
    """Return False if the request was rejected by a limit; raise any other error."""
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        raise error
    return False


def _remote_ports(pid: int) -> set[int]:
    return {each.raddr.port for each in psutil.Process(pid).net_connections("tcp") if each.raddr}


@contextmanager
def database(kind: str) -> Iterator[dict[str, str]]:
    """Yield the settings of a server's database."""
    if kind == "sqlite":
        yield {}
        return
    with private_postgres() as postgres:
        asyncio.run(postgres.run("CREATE DATABASE loragate"))
        yield {"LORAGATE_DATABASE_URL": postgres.url("loragate")}
