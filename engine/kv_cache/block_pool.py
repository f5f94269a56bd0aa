"""Pages of the KV cache: fixed blocks of token places, allocated, shared, and released."""

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from loragate.engine.kv_cache.prefix_cache import PrefixCache, PrefixCounts
from loragate.engine.sequence.prefix_path import CachedBlock
from loragate.engine.sequence.sequence import Sequence

_EVICTION_BATCH = 16
"""Blocks that are demoted to the host tier together, with one gather per layer for all of them."""


class BlockPool:
    """Allocates blocks to sequences. Block 0 is the null block: its places hold zeros, padding points there, and it is
    never allocated.

    A block is *used* while sequences refer to it. After that it is *cached* if its content is known to the prefix
    cache, until its place is needed; else it is free.
    """

    def __init__(self, blocks: int, block_size: int, prefix: PrefixCache | None = None) -> None:
        assert blocks >= 1
        self.block_size = block_size
        self.total = blocks
        self.prefix = prefix
        self._free = list(range(blocks, 0, -1))
        self._references = [0] * (blocks + 1)
        self._content: dict[int, CachedBlock] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # unused blocks with content, least recently used first
        # hashes of blocks that this step computes, by the hash of their first block
        self._underway: dict[bytes, set[bytes]] = {}
        self._offsets = np.arange(block_size, dtype=np.int64)

    @property
    def places(self) -> int:
        """Token places in the cache, including those of the null block."""
        return (self.total + 1) * self.block_size

    @property
    def free(self) -> int:
        """Number of blocks that can be allocated, including those that are only cached."""
        return len(self._free) + len(self._cached)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def used(self) -> int:
        return self.total - self.free

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def begin_step(self) -> None:
        """Clear the blocks being computed: those of the previous step are published by now, or lost."""
        self._underway.clear()

    def shortage(self, sequence: Sequence, committed: int) -> int:
        """Return how many blocks are missing to hold all tokens of a sequence that holds none yet.

        `committed` blocks are left to others; blocks in use that the sequence may share cost it nothing.
        """
        missing = self.blocks_for(len(sequence.tokens)) - (self.free - committed)
        if missing <= 0:
            return missing
        return missing - sum(b.block is not None and self._references[b.block] > 0 for b in self._reusable(sequence))

    def awaits(self, sequence: Sequence) -> bool:
        """Return whether another sequence computes in this very step what this one needs, so that waiting a step is
        free."""
        if self.prefix is None or not self._underway or sequence.remaining == 1 or not sequence.path.open:
            return False
        whole = self._reusable_blocks(sequence)
        if whole == 0:
            return False
        underway = self._underway.get(self.prefix.key(sequence, 0))
        if underway is None:
            return False
        self.prefix.key(sequence, whole - 1)
        return not underway.isdisjoint(sequence.path.hashes[len(sequence.path.held) : whole])

    def reuse(self, sequence: Sequence) -> None:
        """Advance the sequence over its cached tokens."""
        if sequence.remaining == 1:
            return
        before, found = sequence.computed, self._reusable(sequence)
        from_host = self._attach(sequence, found) if found else 0
        self._count(sequence, before, from_host)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give the sequence room for `tokens` tokens in total; return False and allocate nothing if there is not
        enough."""
        missing = self.blocks_for(tokens) - len(sequence.blocks)
        if missing > self.free:
            return False
        if missing > 0:
            new = self._take(missing)
            for block in new:
                self._references[block] = 1
            sequence.blocks += new
            sequence.places = np.concatenate([sequence.places, self._places(new)])
        if tokens - sequence.computed > 1:
            self._announce(sequence, tokens)
        return True

    def publish(self, sequence: Sequence) -> None:
        """Let others find the full blocks that were computed since the last call."""
        held = sequence.path.held
        if len(held) == sequence.computed // self.block_size or not sequence.path.open or self.prefix is None:
            return
        for index in range(len(held), sequence.computed // self.block_size):
            own = sequence.blocks[index]
            known = self.prefix.add(sequence, own)
            if known is None:
                sequence.path.open = False
                return
            held.append(known)
            if known.block == own:
                self._content[own] = known
            else:
                self._replace_block(sequence, index, known)

    def discard(self, sequence: Sequence) -> None:
        """Remove the sequence's blocks, and what was computed from them, from the prefix cache: they may be
        poisoned."""
        sequence.path.open = False
        first = next(iter(sequence.path.held), None)
        # another sequence that shared it may have failed before
        if self.prefix is None or first is None or first.dropped:
            return
        for block in self.prefix.drop(first):
            del self._content[block]
            if not self._references[block]:
                del self._cached[block]
                self._free.append(block)

    def release(self, sequence: Sequence) -> None:
        """Release all that the sequence holds. Its published blocks stay cached."""
        sequence.max_computed = max(sequence.max_computed, sequence.computed)
        self._drop_after(sequence, 0)
        sequence.path.held.clear()

    def _reusable_blocks(self, sequence: Sequence) -> int:
        return sequence.reusable_tokens // self.block_size

    def _reusable(self, sequence: Sequence) -> list[CachedBlock]:
        """Return the cached blocks that come next for the sequence."""
        if self.prefix is None or not sequence.path.open:
            return []
        return self.prefix.find(sequence, self._reusable_blocks(sequence))

    def _attach(self, sequence: Sequence, found: list[CachedBlock]) -> int:
        """Continue with the blocks found, in place of a partial one; return how many came from the host tier."""
        assert self.prefix is not None
        self._drop_after(sequence, len(sequence.path.held))
        on_device = [b for b in found if b.block is not None]
        self._hold(sequence, on_device)
        on_host = found[len(on_device) :][: self.free]
        if on_host:
            self.prefix.promote(on_host, self._take)
            self._hold(sequence, on_host)
        sequence.computed = len(sequence.blocks) * self.block_size
        return len(on_host)

    def _hold(self, sequence: Sequence, known: list[CachedBlock]) -> None:
        """Append cached blocks to the sequence's blocks."""
        blocks = [b.block for b in known if b.block is not None]
        for block, content in zip(blocks, known, strict=True):
            self._content[block] = content
            self._add_reference(block)
        sequence.path.held += known
        sequence.blocks += blocks
        sequence.places = np.concatenate([sequence.places, self._places(blocks)])

    def _replace_block(self, sequence: Sequence, index: int, known: CachedBlock) -> None:
        """Use the block of a sequence that published the same content first, and release our own."""
        assert known.block is not None
        self._add_reference(known.block)
        self._remove_reference(sequence.blocks[index])
        sequence.blocks[index] = known.block
        start = index * self.block_size
        sequence.places[start : start + self.block_size] = self._places([known.block])

    def _drop_after(self, sequence: Sequence, keep: int) -> None:
        for block in reversed(sequence.blocks[keep:]):  # so that a child is evicted before its parent
            self._remove_reference(block)
        del sequence.blocks[keep:]
        sequence.places = sequence.places[: keep * self.block_size]

    def _add_reference(self, block: int) -> None:
        if not self._references[block]:
            self._cached.pop(block, None)
        self._references[block] += 1

    def _remove_reference(self, block: int) -> None:
        self._references[block] -= 1
        assert self._references[block] >= 0
        if not self._references[block]:
            if block in self._content:
                self._cached[block] = None
            else:
                self._free.append(block)

    def _take(self, count: int) -> list[int]:
        """Allocate blocks without references; if needed, the least recently used ones lose their content."""
        short = count - len(self._free)
        if short > 0:
            self._evict(short)
        return [self._free.pop() for _ in range(count)]

    def _evict(self, count: int) -> None:
        assert self.prefix is not None
        if self.prefix.has_host_tier:
            count = min(max(count, _EVICTION_BATCH), len(self._cached))
        evicted = [self._cached.popitem(last=False)[0] for _ in range(count)]
        self.prefix.demote([self._content.pop(block) for block in evicted])
        self._free += evicted

    def _announce(self, sequence: Sequence, tokens: int) -> None:
        """Announce the blocks of the prompt that a chunk of prefill completes, unless they are known already."""
        whole = min(tokens, sequence.prompt_length) // self.block_size
        if self.prefix is None or not sequence.path.open or whole == 0:
            return
        keys = [self.prefix.key(sequence, index) for index in range(len(sequence.path.held), whole)]
        underway = [key for key in keys if not self.prefix.knows(key)]
        if underway:
            self._underway.setdefault(self.prefix.key(sequence, 0), set()).update(underway)

    def _count(self, sequence: Sequence, before: int, host_blocks: int) -> None:
        """Count prompt tokens that others had computed, but not those that a preempted sequence finds of its own."""
        if self.prefix is None or not sequence.path.open:
            return
        known = max(before, sequence.max_computed)
        stop = min(sequence.computed, sequence.prompt_length)
        found = max(0, stop - known)
        from_host = min(found, host_blocks * self.block_size)
        looked_up = 0 if sequence.path.counted else sequence.prompt_length
        if found or looked_up:
            sequence.path.counted = True
            sequence.cached_tokens += found
            counts = PrefixCounts(looked_up, found - from_host, from_host)
            self.prefix.counters.add(sequence.request.share.tenant_id, counts)

    def _places(self, blocks: list[int]) -> npt.NDArray[np.int64]:
        starts = np.array(blocks, dtype=np.int64)[:, None] * self.block_size
        return (starts + self._offsets).reshape(-1)
