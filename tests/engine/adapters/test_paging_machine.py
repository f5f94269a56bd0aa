"""Random orders of requests, new versions, deletions, pins and aborts on an engine that pages constantly.

Every output is what PEFT generates with the version that was requested, or an error that says why; never other tokens.
"""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from state_machines import run_machine
from tiny_models import add_adapter, greedy, make_model

from loragate.engine.local import LocalEngine
from loragate.engine.loop.commands import Pin
from loragate.engine.sequence.output import ErrorCode
from loragate.engine.sequence.request import AdapterKey

RANKS = (4, 8, 64, 8, 16, 4)
PROMPTS = ((5, 9, 13, 21, 34), (7,), tuple(range(10, 60)), (5, 9, 13, 21, 40))
MAX_TOKENS = 6
ALIASES = (None, "v", "w", "x", "y", "z")
VERSIONS = tuple(f"w{i}" for i in range(len(RANKS)))


class Published:
    """Adapter folders by version; a deleted version is removed from disk."""

    def __init__(self, root: Path) -> None:
        self.model = make_model("llama")
        self.model.save_pretrained(root / "base")
        self.root = root
        self.kept = {f"w{i}": add_adapter(self.model, root / "kept" / f"w{i}", i, r=r) for i, r in enumerate(RANKS)}
        self.folders = {name: self._publish(name) for name in self.kept}
        self.expected = cache(self._expected)

    def _publish(self, name: str) -> Path:
        return Path(shutil.copytree(self.kept[name], self.root / "live" / name, dirs_exist_ok=True))

    def restore(self, name: str) -> None:
        self._publish(name)

    def delete(self, name: str) -> None:
        shutil.rmtree(self.folders[name], ignore_errors=True)

    def _expected(self, name: str | None, prompt: tuple[int, ...]) -> list[int]:
        return greedy(self.model, prompt, MAX_TOKENS, name and self.kept[name])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Published, LocalEngine]]:
    published = Published(tmp_path_factory.mktemp("paging"))
    base_rank = 64
    engine = LocalEngine(
        published.root / "base",
        published.root / "cache",
        published.folders,
        threads=1,
        block_size=8,
        kv_cache_tokens=160,
        max_batch_tokens=24,
        max_batch_size=5,
        adapter_slots=3,
        adapter_device_bytes=600_000,
        adapter_host_bytes=400_000,
    )
    assert engine.loaded.base.adapter_bytes(base_rank) > 400_000 // 2, "the tiers are to be too small for all"
    yield published, engine
    engine.close()


class Paging(RuleBasedStateMachine):
    """Aliases point at versions; a request to an alias keeps the version that the alias had at that time."""

    published: Published
    engine: LocalEngine

    def __init__(self) -> None:
        super().__init__()
        self.aliases: dict[str | None, str] = dict(zip(ALIASES[1:], VERSIONS, strict=False))
        self.deleted: set[str] = set()
        self.pending: list[tuple[int, str | None, tuple[int, ...], bool]] = []

    @rule(burst=st.lists(st.tuples(st.sampled_from(ALIASES), st.sampled_from(PROMPTS)), min_size=1, max_size=8))
    def generate(self, burst: list[tuple[str | None, tuple[int, ...]]]) -> None:
        for alias, prompt in burst:
            name = None if alias is None else self.aliases[alias]
            request = self.engine.submit(prompt, name, max_tokens=MAX_TOKENS)
            self.pending.append((request, name, prompt, name in self.deleted))

    @rule(alias=st.sampled_from(ALIASES[1:]), version=st.sampled_from(VERSIONS))
    def republish(self, alias: str, version: str) -> None:
        self.aliases[alias] = version

    @rule(version=st.sampled_from(VERSIONS))
    def delete_or_restore(self, version: str) -> None:
        if version in self.deleted:
            self.published.restore(version)
            self.deleted.discard(version)
        else:
            self.published.delete(version)
            self.deleted.add(version)
            self.pending = [(r, n, p, may_fail or n == version) for r, n, p, may_fail in self.pending]

    @rule(versions=st.sets(st.sampled_from(VERSIONS), max_size=2))
    def pin(self, versions: set[str]) -> None:
        self.engine.core.post(Pin(tuple(AdapterKey("tenant", version) for version in sorted(versions))))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.pending))
        self.pending.remove(entry)
        self.engine.abort(entry[0])

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.pending))
        self.pending.remove(entry)
        self.check(*entry)

    def check(self, request: int, name: str | None, prompt: tuple[int, ...], may_fail: bool) -> None:
        outputs = self.engine.result(request)
        error = outputs[-1].error
        if error is None:
            assert self.engine.tokens(request) == self.published.expected(name, prompt), (name, prompt)
        else:
            assert error[0] is ErrorCode.ADAPTER_UNAVAILABLE
            assert may_fail, f"{name} was there all the time: {error}"

    def teardown(self) -> None:
        for entry in self.pending:
            self.check(*entry)
        for version in list(self.deleted):
            self.published.restore(version)
        self.engine.core.post(Pin(()))
        core = self.engine.core
        self.engine.generate(PROMPTS[0], max_tokens=1)  # until all earlier commands were processed
        assert not core.scheduler.running
        assert all(resident.sequences == 0 for resident in core.adapters.residents())


def _run(world: tuple[Published, LocalEngine], examples: int, steps: int) -> None:
    class Machine(Paging):
        published, engine = world

    run_machine(Machine, examples, steps)


def test_tokens_come_from_the_requested_version(world: tuple[Published, LocalEngine]) -> None:
    _run(world, examples=12, steps=25)
    assert world[1].core.adapters.counters.evictions > 10, "it was to page"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_tokens_come_from_the_requested_version_in_long_runs(world: tuple[Published, LocalEngine]) -> None:
    _run(world, examples=150, steps=60)
