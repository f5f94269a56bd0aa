"""Blocks that are shared, evicted, moved and dropped in random order.

Their reference counts stay right, and the cached states that a sequence finds are those that its tokens, adapters and
tenant would have computed.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from state_machines import run_machine

from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.kv_cache.host_tier import KVHostTier
from loragate.engine.kv_cache.prefix_cache import PrefixCache
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import write_kv

BLOCK = 2
SALTS = (b"", b"one", b"two")
ADAPTERS = (None, AdapterKey("t", "x"), AdapterKey("t", "y"))
few = st.lists(st.integers(0, 1), min_size=1, max_size=12)


class Blocks(RuleBasedStateMachine):
    """A step loop whose model writes, for each token, a number that stands for everything its keys depend on."""

    sequences: Bundle[Sequence] = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Sequence] = []
        self.meanings: dict[tuple[Any, ...], float] = {}

    @initialize(blocks=st.integers(4, 14), slots=st.sampled_from([0, 1, 3, 40]))
    def start(self, blocks: int, slots: int) -> None:
        places = (blocks + 1) * BLOCK
        shapes = [(2, 1, 1), (1, 2, 1)]
        self.caches = [LayerCache(places, *shape, torch.float64, torch.device("cpu")) for shape in shapes]
        block_bytes = BLOCK * (2 * 2 + 1 * 3) * 8
        self.host = KVHostTier(self.caches, BLOCK, slots * block_bytes + 1)
        self.prefix = PrefixCache("base", BLOCK, self.host)
        self.pool = BlockPool(blocks, BLOCK, self.prefix)

    @rule(
        target=sequences,
        prompt=few,
        salt=st.sampled_from(SALTS),
        adapter=st.sampled_from(ADAPTERS),
        adapter_from=st.integers(0, 9),
        n=st.integers(1, 3),
    )
    def arrive(self, prompt: list[int], salt: bytes, adapter: AdapterKey | None, adapter_from: int, n: int) -> Any:
        request = Request(0, 0, tuple(prompt), adapter, SamplingParams(9, 0), n=n, cache_salt=salt)
        made = [Sequence(request, index) for index in range(n)]
        for sequence in made:
            sequence.adapter_from = adapter_from
        self.live += made
        return multiple(*made)

    @rule(
        chosen=st.lists(sequences, min_size=1, max_size=4, unique=True),
        chunk=st.integers(1, 12),
        token=st.integers(0, 1),
        patient=st.booleans(),
    )
    def step(self, chosen: list[Sequence], chunk: int, token: int, patient: bool) -> None:
        self.pool.begin_step()
        rows: dict[Sequence, int] = {}
        for sequence in chosen:
            if not sequence.blocks and self.pool.shortage(sequence, 0) > 0:
                continue
            admitted = not sequence.blocks
            if patient and self.pool.awaits(sequence):
                continue
            self.pool.reuse(sequence)
            assert sequence.remaining >= 1, "the last token is computed, for its logits"
            tokens = min(sequence.remaining, chunk)
            grown = self.pool.grow(sequence, sequence.computed + tokens)
            assert grown or not admitted, "what fits can be grown"
            if grown:
                rows[sequence] = tokens
            else:
                self.preempt(sequence)
        for sequence, tokens in rows.items():
            self._compute(sequence, tokens)
        for sequence, tokens in rows.items():
            sequence.computed += tokens
            self.pool.publish(sequence)
            if sequence.remaining == 0:
                sequence.tokens.append(token)

    @rule(sequence=sequences)
    def preempt(self, sequence: Sequence) -> None:
        self.pool.release(sequence)
        sequence.computed = 0

    @rule(sequence=consumes(sequences), poisoned=st.booleans())
    def end(self, sequence: Sequence, poisoned: bool) -> None:
        if poisoned:
            self.pool.discard(sequence)
        self.pool.release(sequence)
        self.live.remove(sequence)

    @invariant()
    def every_block_is_free_cached_or_used(self) -> None:
        used = Counter(block for sequence in self.live for block in sequence.blocks)
        free, cached = self.pool._free, list(self.pool._cached)
        assert sorted([*used, *free, *cached]) == list(range(1, self.pool.total + 1)), "each once, and never the null"
        assert all(self.pool._references[block] == used[block] for block in range(self.pool.total + 1))
        assert (self.pool.used, self.pool.cached) == (len(used), len(cached))

    @invariant()
    def known_blocks_exist_and_follow_their_parent(self) -> None:
        on_host = set()
        for known in self.prefix._known.values():
            assert not known.dropped
            assert (known.block is None) == (known.host_slot is not None)
            if known.block is None:
                on_host.add(known)
            else:
                assert self.pool._content[known.block] is known
            if known.parent is not None:
                assert self.prefix._known[known.parent.hash] is known.parent
                assert known in known.parent.children
                assert known.block is None or known.parent.block is not None
        assert set(self.prefix._on_host) == on_host
        assert len(self.pool._content) + len(on_host) == len(self.prefix._known)
        assert self.host.used == len(on_host) <= self.host.total

    @invariant()
    def sequences_see_what_they_would_have_computed(self) -> None:
        for sequence in self.live:
            assert len(sequence.places) == len(sequence.blocks) * BLOCK
            assert sequence.computed <= len(sequence.places)
            for position, meaning in enumerate(self._expected_keys(sequence, 0, sequence.computed)):
                for cache in self.caches:
                    place = int(sequence.places[position])
                    assert set(cache.keys[:, place].flatten().tolist()) == {meaning}
                    assert set(cache.values[:, place].flatten().tolist()) == {-meaning}

    def teardown(self) -> None:
        for sequence in self.live:
            self.pool.release(sequence)
        self.live.clear()
        if hasattr(self, "pool"):
            self.every_block_is_free_cached_or_used()
            assert self.pool.used == 0

    def _compute(self, sequence: Sequence, tokens: int) -> None:
        start, stop = sequence.computed, sequence.computed + tokens
        numbers = torch.tensor(self._expected_keys(sequence, start, stop), dtype=torch.float64)
        places = torch.from_numpy(sequence.places[start:stop].copy())
        for cache in self.caches:
            write_kv(
                cache,
                places,
                numbers[None, :, None].expand(cache.keys.shape[0], -1, cache.keys.shape[2]),
                -numbers[None, :, None].expand(cache.values.shape[0], -1, cache.values.shape[2]),
            )

    def _expected_keys(self, sequence: Sequence, start: int, stop: int) -> list[float]:
        """Return numbers that depend on the tokens so far, on the adapter that computed each, and on the tenant."""
        adapter, since = sequence.request.adapter, sequence.adapter_from
        steps = [(token, adapter if i >= since else None) for i, token in enumerate(sequence.tokens[:stop])]
        owner = sequence.request.cache_salt or sequence.arrival
        whole = [(owner, *steps[: i + 1]) for i in range(stop)]
        return [self.meanings.setdefault(each, float(len(self.meanings) + 1)) for each in whole][start:]


def test_any_order_of_steps() -> None:
    run_machine(Blocks, examples=60)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_any_order_of_steps_in_long_runs() -> None:
    run_machine(Blocks, examples=1500)
