"""vLLM as a backend: requests, adapters and their ends, at a vLLM without a model."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_vllm import VOCABULARY, FakeLlm

from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE, read_files
from loragate.engine.config import EngineConfig
from loragate.engine.grammar.spec import Grammar, GrammarKind
from loragate.engine.grammar.thinking import Thinking
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.sequence.output import ErrorCode, FinishReason, Output
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams, Share
from loragate.engine.server.backend import Links
from loragate.engine.vllm_backend.backend import VllmBackend
from loragate.engine.vllm_backend.random_adapters import write_random
from loragate.engine.vllm_backend.served_model import ServedModel
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule
from loragate.v1 import engine_pb2 as pb

Q = TargetModule("model.layers.0.self_attn.q_proj", ModuleKind.LINEAR, 16, 16)
LAYOUT = BaseLayout("llama", 1, {Q.name: Q}, max_rank=16, dtype="float32")
MANIFEST = pb.Manifest(model_id="tiny", vocab_size=VOCABULARY, device="cpu")
EOS = frozenset({319})


class Peer:
    """Has the files of all adapters."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        self.asked: Counter[str] = Counter()

    async def fetch(self, key: AdapterKey) -> AsyncIterator[pb.AdapterPart]:
        self.asked[key.digest] += 1
        folder = self.folders.get(key.digest)
        if folder is None:
            yield pb.AdapterPart(error="no such adapter", last=True)
            return
        yield pb.AdapterPart(config_json=(folder / CONFIG_FILE).read_bytes())
        yield pb.AdapterPart(tensors=(folder / TENSORS_FILE).read_bytes(), last=True)


class Served:
    """A backend, its vLLM, and what it emitted."""

    def __init__(self, folder: Path, slots: int, seats: int, **options: Any) -> None:
        self.llm = FakeLlm(slots + 1)
        self.keys: dict[str, AdapterKey] = {}
        folders = {}
        for seed, name in enumerate("abcde"):
            written = write_random(folder / name, {Q: 4}, seed, 0.5)
            digest = read_files(written, LAYOUT).digest
            self.keys[name], folders[digest] = AdapterKey("tn_1", digest), written
        self.peer = Peer(folders)
        self.outputs: list[Output] = []
        self.crashed = False
        self._ids = itertools.count(1)
        self._changed = asyncio.Event()
        limits = ModelLimits(256, VOCABULARY, EOS, embeds=False)
        config = EngineConfig(
            model="tiny", listen="", cache_dir=folder / "cache", adapter_slots=slots, max_batch_size=seats, **options
        )
        links = Links(lambda key: [self.peer], self._emit, self._crash)
        self.backend = VllmBackend(self.llm, ServedModel(MANIFEST, LAYOUT, limits), itertools.count(1), config, links)

    def submit(self, adapter: str | None = None, tenant: str = "tn_1", **fields: Any) -> int:
        number = next(self._ids)
        sampling = SamplingParams(**{"max_tokens": 4, "seed": 0} | fields.pop("sampling", {}))
        key = None if adapter is None else self.keys.get(adapter, AdapterKey("tn_1", adapter))
        fields = {"share": Share(tenant)} | fields
        self.backend.submit(Request(1, number, (5, 9, 13), key, sampling, **fields))
        return number

    async def result(self, number: int, n: int = 1) -> list[Output]:
        async with asyncio.timeout(20):
            while sum(output.finish is not None for output in self._of(number)) < n:
                await self._changed.wait()
                self._changed.clear()
        return self._of(number)

    async def tokens(self, adapter: str | None = None, **fields: Any) -> list[int]:
        return tokens_of(await self.result(self.submit(adapter, **fields)))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)

    def _of(self, number: int) -> list[Output]:
        return [output for output in self.outputs if output.request.request_id == number]

    def _emit(self, outputs: Iterable[Output]) -> None:
        self.outputs += outputs
        self._changed.set()

    def _crash(self) -> None:
        self.crashed = True
        self._changed.set()


def tokens_of(outputs: list[Output]) -> list[int]:
    return [output.token for output in outputs if output.token is not None]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(slots: int = 2, seats: int = 8, **options: Any) -> Served:
        made.append(Served(tmp_path / str(len(made)), slots, seats, **options))
        return made[-1]

    yield start
    for each in made:
        await each.backend.stop()


async def test_adapters_take_turns_in_the_slots_and_answer_as_themselves(serve: Callable[..., Served]) -> None:
    served, plenty = serve(slots=2), serve(slots=5)
    expected = {name: await plenty.tokens(name) for name in ("a", "b", "c", "d", "e", None)}
    assert len({tuple(tokens) for tokens in expected.values()}) == 6
    names = ["a", None, "b", "c", None, "d", "a", "e", "b", None] * 3
    found = await asyncio.gather(*(served.tokens(name) for name in names))
    assert found == [expected[name] for name in names]
    assert len(served.llm.numbers) == len(set(served.llm.numbers)) >= 5
    assert len(served.llm.inside) <= 2
    assert max(served.peer.asked.values()) == 1, "files are fetched once, however often an adapter leaves vLLM"
    stats = served.backend.stats(pb.StatsRequest(adapter_rows=10, tenants=True))
    assert (stats.requests, stats.running, stats.waiting, stats.slots_total) == (30, 0, 0, 2)
    assert stats.adapter_loads - stats.adapter_evictions == stats.slots_used == 2
    assert {row.requests for row in stats.adapters} == {9, 6, 3}


async def test_a_last_slot_that_leaks_is_never_used(serve: Callable[..., Served]) -> None:
    served = serve(slots=2)
    served.llm.last_slot_leaks = True
    base = await served.tokens()
    assert await asyncio.gather(*(served.tokens(name) for name in ("a", "b", "c", None, "d", None))) is not None
    assert await served.tokens() == base


async def test_no_more_runs_than_there_are_seats_and_tenants_take_turns(serve: Callable[..., Served]) -> None:
    served = serve(seats=2)
    flood = [served.submit(tenant="flood") for _ in range(10)]
    other = served.submit(tenant="other")
    await served.result(other)
    assert sum(bool(served._of(number)) for number in flood) <= 4
    for number in flood:
        await served.result(number)
    assert served.llm.most_running == 2


async def test_batches_begin_only_while_nothing_else_runs(serve: Callable[..., Served]) -> None:
    served = serve(seats=2)
    served.llm.gate = asyncio.Event()
    first = served.submit()
    await served.until(lambda: served.llm.most_running == 1)
    batch = [served.submit(share=Share("tn_1", batch=True)) for _ in range(2)]
    second = served.submit(tenant="other")
    await served.until(lambda: served.llm.most_running == 2)
    served.llm.gate.set()
    for number in (first, second, *batch):
        await served.result(number)
    ends = [output.request.request_id for output in served.outputs if output.finish is not None]
    assert set(ends[:2]) == {first, second}
    assert served.llm.most_running == 2


async def test_an_adapter_that_waits_for_a_slot_is_not_overtaken_for_ever(serve: Callable[..., Served]) -> None:
    served = serve(slots=1, seats=8)
    served.llm.gate = asyncio.Event()
    first = served.submit("a")
    await served.until(lambda: served.llm.running == 1)
    waiting = served.submit("b")
    later = [served.submit("a") for _ in range(5)]
    served.llm.gate.set()
    await asyncio.gather(*(served.result(number) for number in (first, waiting, *later)))
    ended = [output.request.request_id for output in served.outputs if output.finish]
    assert ended[:2] == [first, waiting]


async def test_every_completion_of_a_request_ends_by_itself(serve: Callable[..., Served]) -> None:
    served = serve()
    outputs = await served.result(served.submit("a", n=3, sampling={"temperature": 1.0}), 3)
    ends = {output.index: output for output in outputs if output.finish}
    assert sorted(ends) == [0, 1, 2]
    assert all(end.finish is FinishReason.LENGTH for end in ends.values())
    assert all(end.computed == (1, 2, 4) for end in ends.values())
    assert len({call.sampling["seed"] for call in served.llm.calls}) == 3


async def test_an_aborted_completion_ends_once_and_frees_its_adapter(serve: Callable[..., Served]) -> None:
    served = serve(slots=1)
    served.llm.gate = asyncio.Event()
    number, queued = served.submit("a", n=2, sampling={"max_tokens": 200}), served.submit("b")
    await served.until(lambda: served.llm.running == 2)
    served.backend.abort(1, number, 1)
    await served.until(lambda: served.llm.running == 1)
    served.backend.abort(1)
    assert [(o.request.request_id, o.index) for o in served.outputs if o.finish is FinishReason.ABORTED] == [
        (number, 1),
        (number, 0),
        (queued, 0),
    ]
    served.llm.gate.set()
    assert len(await served.tokens("b")) == 4
    assert not served.llm.running


async def test_a_deleted_adapter_leaves_every_tier_after_its_last_request(serve: Callable[..., Served]) -> None:
    served = serve()
    served.llm.gate = asyncio.Event()
    number = served.submit("a")
    await served.until(lambda: served.llm.running == 1)
    served.backend.retire((served.keys["a"],))
    assert [held.tier for held in served.backend.inventory().held] == [pb.TIER_DEVICE]
    served.llm.gate.set()
    assert len(tokens_of(await served.result(number))) == 4
    await served.until(lambda: not served.llm.inside)
    assert not served.backend.inventory().held


async def test_a_pinned_adapter_is_loaded_without_a_request_and_stays(serve: Callable[..., Served]) -> None:
    served = serve(slots=2)
    served.backend.pin((served.keys["d"],))
    await served.until(lambda: len(served.llm.inside) == 1)
    for name in "abcab":
        await served.tokens(name)
    residents = {r.adapter.digest: r.pinned for r in served.backend.stats(pb.StatsRequest()).residents}
    assert residents[served.keys["d"].digest]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pooling": Pooling.LAST}, "pooling: .*vLLM"),
        ({"thinking": Thinking((7,), (7,), 3, True, ())}, "thinking: .*vLLM"),
        ({"sampling": {"logit_bias": ((999, 1.0),)}}, "logit_bias"),
        ({"grammar": Grammar(GrammarKind.REGEX, "(")}, "the grammar cannot be used"),
    ],
)
async def test_what_cannot_be_mapped_is_refused_by_name(
    fields: dict[str, Any], words: str, serve: Callable[..., Served]
) -> None:
    served = serve()
    [output] = await served.result(served.submit(**fields))
    assert output.error is not None
    assert output.error.code is ErrorCode.INVALID_REQUEST
    assert re.search(words, output.error.message)
    assert not served.llm.calls


async def test_failures_end_their_own_requests_only(serve: Callable[..., Served]) -> None:
    served = serve()
    [missing] = await served.result(served.submit("sha256:" + "1" * 64))
    assert missing.error is not None
    assert missing.error.code is ErrorCode.ADAPTER_UNAVAILABLE
    served.llm.rejects = "top_p must be in (0, 1]"
    [rejected] = await served.result(served.submit())
    assert rejected.error == (ErrorCode.INVALID_REQUEST, "top_p must be in (0, 1]", None, False)
    served.llm.rejects, served.llm.forgets = "", True
    [forgotten] = await served.result(served.submit())
    assert forgotten.error is not None
    assert forgotten.error.code is ErrorCode.INTERNAL
    served.llm.forgets = False
    assert len(await served.tokens("a")) == 4
    assert served.backend.stats(pb.StatsRequest()).requests == 4


async def test_a_full_queue_and_a_late_request_are_shed(serve: Callable[..., Served]) -> None:
    served = serve(seats=1, max_waiting=2)
    served.llm.gate = asyncio.Event()
    served.submit()
    for _ in range(2):
        served.submit()
    [shed] = await served.result(served.submit())
    assert shed.error is not None
    assert shed.error.code is ErrorCode.OVERLOADED
    assert shed.error.own_queue
    late = serve(seats=1)
    late.llm.gate = asyncio.Event()
    late.submit()
    number = late.submit(share=replace(Share("tn_1"), deadline=asyncio.get_running_loop().time() + 0.01))
    await asyncio.sleep(0.02)
    late.backend.load()
    [expired] = await late.result(number)
    assert expired.error is not None
    assert "deadline" in expired.error.message


async def test_a_dead_vllm_ends_the_process(serve: Callable[..., Served]) -> None:
    served = serve()
    served.llm.gate = asyncio.Event()
    served.submit()
    await served.until(lambda: served.llm.running == 1)
    served.llm.dead = True
    served.llm.gate.set()
    await served.until(lambda: served.crashed)


async def test_a_vllm_that_died_without_requests_is_noticed(serve: Callable[..., Served]) -> None:
    served = serve()
    served.backend.load()
    assert not served.crashed
    served.llm.dead = True
    served.backend.load()
    assert served.crashed
