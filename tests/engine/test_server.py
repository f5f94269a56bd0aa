"""The engine as its clients see it: its own process, one stream, adapter bytes on demand, and its failures."""

import asyncio
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tiny_models import greedy

from loragate.adapter_store.base_model.layout import layout_of
from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE, read_files
from loragate.engine.client.errors import EngineRequestError, EngineUnavailable
from loragate.engine.client.grpc_client import GrpcEngineClient
from loragate.engine.client.session import AdapterBytes
from loragate.engine.link_security import metadata_of
from loragate.v1 import engine_pb2 as pb

PROMPT = [5, 9, 13, 21]
SECRET = "the secret of the link"


class FolderSource:
    """Provides adapters by digest; counts how often each was requested."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.opened: list[str] = []

    async def open(self, tenant_id: str, digest: str) -> AdapterBytes:
        self.opened.append(digest)
        folder = self.folders[digest]

        async def chunks() -> AsyncIterator[bytes]:
            data = (folder / TENSORS_FILE).read_bytes()
            for start in range(0, len(data), 1000):
                yield data[start : start + 1000]

        return AdapterBytes((folder / CONFIG_FILE).read_bytes(), chunks())


@pytest.fixture
def spawn(tiny, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:  # type: ignore[no-untyped-def]
    processes = []
    base = shutil.copytree(tiny.base, tmp_path / "base")

    def spawn() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "loragate.engine", "--model", str(base), "--listen", target(tmp_path)]
        command += ["--cache-dir", tmp_path / "cache", "--threads", "1", "--adapter-slots", "2"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "LORAGATE_ENGINE_SECRET": SECRET}
        processes.append(subprocess.Popen(command, env=environment))
        return processes[-1]

    yield spawn
    for process in processes:
        process.kill()
        process.wait()


def target(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/e.sock"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[tuple[GrpcEngineClient, FolderSource]]:
    source = FolderSource()
    made = GrpcEngineClient(target(tmp_path), source, secret=SECRET, heartbeat_timeout=5.0)
    await made.start()
    yield made, source
    await made.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.02)


def submit(digest: str | None = None, **sampling) -> pb.Submit:  # type: ignore[no-untyped-def]
    sampling = {"max_tokens": 8, "ignore_eos": True} | sampling
    request = pb.Submit(prompt_token_ids=PROMPT, sampling=pb.Sampling(**sampling))
    if digest is not None:
        request.adapter.tenant_id, request.adapter.digest = "tn_1", digest
    return request


async def tokens_of(client: GrpcEngineClient, request: pb.Submit) -> list[int]:
    async with client.generate(request) as deltas:
        return [token async for delta in deltas for token in delta.token_ids]


# INTERNAL: the client's gRPC was still sending when the server ended the call.
_REJECTED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL)


async def no_other_client_may_call(tmp_path: Path) -> None:
    """Every method of the service demands the secret, on a Unix socket, too; so does one that does not exist."""
    async with grpc.aio.insecure_channel(target(tmp_path)) as channel:
        service = pb.DESCRIPTOR.services_by_name["EngineService"]
        methods = [f"/{service.full_name}/{method.name}" for method in service.methods]
        for method in (*methods, f"/{service.full_name}/Invented"):
            for metadata in ((), metadata_of(""), metadata_of("another secret"), metadata_of(SECRET) * 2):
                call = channel.stream_stream(method)(iter([b""]), metadata=metadata)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call.read()
                assert refused.value.code() in _REJECTED, method
        # No message is written: the server may answer before it arrives, and the client would report that instead.
        call = channel.stream_stream(f"/{service.full_name}/Invented")(metadata=metadata_of(SECRET))
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await call.read()
        assert missing.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def _an_export_ends_with_its_client(
    engine: GrpcEngineClient, ref: pb.AdapterRef, digest: str, base: Path
) -> None:
    """The engine sends no further than the client reads, so this export ends only because the client cancels it."""
    with (base / "NOTICE").open("wb") as large:
        large.truncate(1 << 33)
    export = engine.export_merged(ref, digest)
    assert (await anext(export)).size_bytes > 1 << 33
    assert (await anext(export)).data
    with pytest.raises(EngineRequestError) as busy:
        await anext(engine.export_merged(ref, digest, size_only=True))
    assert busy.value.code == pb.ERROR_CODE_OVERLOADED
    await export.aclose()
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(EngineRequestError):
                assert await anext(engine.export_merged(ref, digest, size_only=True))
                break
            await asyncio.sleep(0.02)


async def test_from_manifest_to_restart(tiny, tmp_path: Path, spawn, client) -> None:  # type: ignore[no-untyped-def]
    """One process serves all parts of this test, because starting it takes seconds."""
    engine, source = client
    with pytest.raises(EngineUnavailable):
        await tokens_of(engine, submit())
    process = spawn()
    await until(lambda: engine.ready)

    manifest = await engine.describe()
    assert manifest.architecture == "LlamaForCausalLM"
    await no_other_client_may_call(tmp_path)
    assert list(manifest.eos_token_ids) == [2]
    names = [m.name for m in manifest.modules if m.servable]
    assert "model.layers.0.self_attn.q_proj" in names
    assert "lm_head" in names

    # adapters come over the stream, once each, and generate as PEFT does, in batches with the base model
    layout = layout_of(manifest)
    digests = {name: read_files(folder, layout).digest for name, folder in tiny.adapters.items()}
    source.folders = {digests[name]: folder for name, folder in tiny.adapters.items()}
    wanted = [None, "a", "b", "c", "d", "a", "b", None] * 2
    answers = await asyncio.gather(*(tokens_of(engine, submit(name and digests[name])) for name in wanted))
    for name, answer in zip(wanted, answers, strict=True):
        expected = await asyncio.to_thread(greedy, tiny.model, PROMPT, 8, name and tiny.adapters[name])
        assert answer == expected, name
    assert sorted(source.opened) == sorted(digests.values()), "each was fetched once despite evictions"

    # a merged export comes whole, and only from an engine with the base model that it names
    ref = pb.AdapterRef(tenant_id="tn_1", digest=digests["a"])
    exported = [part async for part in engine.export_merged(ref, manifest.base_digest)]
    archive = b"".join(part.data for part in exported)
    assert len(archive) == exported[0].size_bytes
    (size,) = [part async for part in engine.export_merged(ref, manifest.base_digest, size_only=True)]
    assert (size.size_bytes, size.data) == (len(archive), b"")
    with tarfile.open(fileobj=io.BytesIO(archive)) as merged:
        assert {"config.json", "model.safetensors"} <= set(merged.getnames())
    for key, base, error in (
        (ref, "sha256:another", EngineUnavailable),
        (pb.AdapterRef(tenant_id="tn_1", digest="sha256:" + "1" * 64), manifest.base_digest, EngineRequestError),
    ):
        with pytest.raises(error):
            await anext(engine.export_merged(key, base))
    await _an_export_ends_with_its_client(engine, ref, manifest.base_digest, tmp_path / "base")

    # an adapter whose bytes do not match its digest, or that no client has, fails its own request
    source.folders["sha256:" + "0" * 64] = tiny.adapters["a"]
    for digest, words in (
        ("sha256:" + "0" * 64, "digest"),
        ("sha256:" + "1" * 64, "no such adapter"),
        ("../x", "malformed"),
    ):
        with pytest.raises(EngineRequestError, match=words) as caught:
            await tokens_of(engine, submit(digest))
        assert caught.value.code == pb.ERROR_CODE_ADAPTER_UNAVAILABLE

    # a thought is closed at its budget, and a bad one is rejected with the field's name
    request = submit()
    request.thinking.CopyFrom(pb.Thinking(end=[7, 8], end_marker=[8], max_tokens=3, open=True))
    assert (await tokens_of(engine, request))[3:5] == [7, 8]
    request.thinking.end[0] = 1 << 20
    with pytest.raises(EngineRequestError, match=r"thinking\.end has a token id outside") as rejected:
        await tokens_of(engine, request)
    assert rejected.value.code == pb.ERROR_CODE_INVALID_REQUEST

    # an adapter that a client pins is loaded without a request, and stays while others are requested
    engine.pin([pb.AdapterRef(tenant_id="tn_1", digest=digests["d"])])
    for name in ("a", "b", "c", "a"):
        await tokens_of(engine, submit(digests[name]))
    async with asyncio.timeout(30):
        while digests["d"] not in {r.adapter.digest for r in (await engine.stats()).residents}:
            await asyncio.sleep(0.02)
    loads = (await engine.stats()).adapter_loads
    await tokens_of(engine, submit(digests["d"]))
    assert (await engine.stats()).adapter_loads == loads
    engine.pin([])

    # a prefetched adapter is stored on the disk without a request; a deleted one leaves all tiers after its last
    # request
    def held() -> dict[str, int]:
        return {h.adapter.digest: h.tier for h in inventory.held}

    inventory = await engine.inventory()
    assert held()[digests["d"]] == pb.TIER_DEVICE
    assert set(held()) == set(digests.values())
    async with engine.generate(submit(digests["d"], max_tokens=300)) as deltas:
        await anext(deltas)
        engine.retire([pb.AdapterRef(tenant_id="tn_1", digest=digest) for digest in (*digests.values(), "../x")])
        assert sum([len(delta.token_ids) async for delta in deltas]) > 100
    async with asyncio.timeout(30):
        while (inventory := await engine.inventory()).held:
            await asyncio.sleep(0.02)
    assert not list((tmp_path / "cache" / "adapters").glob("*/*"))
    engine.pin([pb.AdapterRef(tenant_id="tn_1", digest=digests["b"])])
    wanted = ("../x", digests["b"], digests["c"])  # one of them is on its way already
    engine.prefetch([pb.AdapterRef(tenant_id="tn_1", digest=digest) for digest in wanted])
    async with asyncio.timeout(30):
        while held() != {digests["b"]: pb.TIER_DEVICE, digests["c"]: pb.TIER_DISK}:
            inventory = await engine.inventory()
            await asyncio.sleep(0.02)
    assert await tokens_of(engine, submit(digests["c"])) == greedy(tiny.model, PROMPT, 8, tiny.adapters["c"])
    assert [source.opened.count(digests[name]) for name in "bc"] == [2, 2]
    engine.pin([])

    # a preloaded adapter is in memory without a request, and its files are asked for once
    before = source.opened.count(digests["a"])
    engine.preload([pb.AdapterRef(tenant_id="tn_1", digest=digest) for digest in ("../x", digests["a"])])
    async with asyncio.timeout(30):
        while held().get(digests["a"]) != pb.TIER_HOST:
            inventory = await engine.inventory()
            await asyncio.sleep(0.02)
    reads = (await engine.stats()).adapter_reads
    assert await tokens_of(engine, submit(digests["a"])) == greedy(tiny.model, PROMPT, 8, tiny.adapters["a"])
    assert (await engine.stats()).adapter_reads == reads
    assert source.opened.count(digests["a"]) == before + 1

    # a traced request reports how long it waited, and how long its prompt took
    traced = submit()
    traced.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with engine.generate(traced) as deltas:
        first, *others = [delta async for delta in deltas]
    assert first.timings.queue_seconds >= 0
    assert first.timings.prefill_seconds > 0
    assert not any(delta.HasField("timings") for delta in others)

    # while requests wait, the engine says so
    waiting = [asyncio.create_task(tokens_of(engine, submit(max_tokens=300))) for _ in range(100)]
    await until(lambda: engine.load is not None)
    assert engine.load is not None
    assert engine.load.request_seconds > 0
    for task in waiting:
        task.cancel()
    await until(lambda: engine.load is None)

    # leaving the block ends the request in the engine
    async with engine.generate(submit(max_tokens=400)) as deltas:
        await anext(deltas)
    async with asyncio.timeout(10):
        while (await engine.stats()).running:
            await asyncio.sleep(0.02)

    # a hung engine differs from a slow one by its missing heartbeat
    async with engine.generate(submit(max_tokens=500)) as deltas:
        await anext(deltas)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(EngineUnavailable):
            async for _ in deltas:
                pass
    assert not engine.ready
    process.send_signal(signal.SIGCONT)
    await until(lambda: engine.ready)

    # a killed one ends its streams, and the next process is found without help
    async with engine.generate(submit(max_tokens=500)) as deltas:
        await anext(deltas)
        process.kill()
        with pytest.raises(EngineUnavailable):
            async for _ in deltas:
                pass
    process = spawn()
    await until(lambda: engine.ready)
    assert await tokens_of(engine, submit(digests["a"])) == greedy(tiny.model, PROMPT, 8, tiny.adapters["a"])
    assert source.opened.count(digests["a"]) == 2, "it was fetched again, because it had left the disk"

    # SIGTERM ends it cleanly
    process.terminate()
    assert await asyncio.to_thread(process.wait, 20) == 0


def test_a_rejected_model_exits_with_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loragate.engine", "--model", tmp_path / "none", "--listen", target(tmp_path)]
    ended = subprocess.run(
        [*command, "--cache-dir", tmp_path],
        env=os.environ | {"LORAGATE_ENGINE_SECRET": SECRET},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2
    assert "there is no folder" in ended.stderr
    assert "Traceback" not in ended.stderr
