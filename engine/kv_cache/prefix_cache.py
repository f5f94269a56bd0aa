"""The index of known blocks of keys and values by content, over two tiers: the device and host memory.

This is automatic prefix caching (vLLM, arXiv:2309.06180; RadixAttention, arXiv:2312.07104).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

from loragate.engine.kv_cache.host_tier import KVHostTier
from loragate.engine.sequence.prefix_path import BlockContent, CachedBlock, block_hash, root_hash
from loragate.engine.sequence.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefixCounts:
    """Prompt tokens since the start. With n completions a prompt is looked up n times."""

    looked_up: int = 0
    from_device: int = 0
    from_host: int = 0

    def __add__(self, other: "PrefixCounts") -> "PrefixCounts":
        return PrefixCounts(
            self.looked_up + other.looked_up,
            self.from_device + other.from_device,
            self.from_host + other.from_host,
        )


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """The state of the prefix cache at one moment. Evictions are in blocks."""

    total: PrefixCounts
    tenants: Mapping[str, PrefixCounts]
    device_evictions: int  # evicted from the device, whether the host tier took them or not
    host_evictions: int  # dropped to make room in the host tier
    host_bytes_used: int
    host_bytes: int


class PrefixCache:
    """A tree of blocks, found by a hash chain and compared with their content before they are used.

    A block's parent is never in a slower tier than the block itself: sequences hold whole paths, so a child's last use
    is never after its parent's, and both tiers evict by last use.
    """

    def __init__(self, base_digest: str, block_size: int, host: KVHostTier) -> None:
        self._base_digest = base_digest
        self._block_size = block_size
        self._host = host
        self._known: dict[bytes, CachedBlock] = {}
        self._on_host: OrderedDict[CachedBlock, None] = OrderedDict()  # least recently used first
        self.counters = PrefixCounters()

    @property
    def has_host_tier(self) -> bool:
        return self._host.total > 0

    def key(self, sequence: Sequence, index: int) -> bytes:
        """Return the hash of the sequence's `index`-th block, computed once."""
        hashes = sequence.path.hashes
        while len(hashes) <= index:
            parent = hashes[-1] if hashes else root_hash(sequence.request.cache_salt, self._base_digest)
            content = self._content(sequence, len(hashes))
            hashes.append(block_hash(parent, content.adapter, content.tokens))
        return hashes[index]

    def knows(self, key: bytes) -> bool:
        return key in self._known

    def find(self, sequence: Sequence, stop: int) -> list[CachedBlock]:
        """Return the cached blocks that follow those the sequence holds, up to its `stop`-th."""
        held = sequence.path.held
        parent = held[-1] if held else None
        found: list[CachedBlock] = []
        for index in range(len(held), stop):
            block = self._known.get(self.key(sequence, index))
            if block is None or not block.is_for(parent, self._content(sequence, index)):
                break
            found.append(block)
            parent = block
        return found

    def add(self, sequence: Sequence, block: int) -> CachedBlock | None:
        """Publish the sequence's next block, or find the one that was published before it.

        Its parent is the last one that the sequence holds. None means that this block and those after it cannot be
        found again.
        """
        held = sequence.path.held
        parent, index = held[-1] if held else None, len(held)
        if parent is not None and parent.dropped:
            return None
        key, content = self.key(sequence, index), self._content(sequence, index)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = CachedBlock(key, parent, content, block)
            if parent is not None:
                parent.children.add(known)
        elif not known.is_for(parent, content):
            return None  # two contents with one hash: the first keeps it
        elif known.block is None:
            self._release_host_slot(known)
            known.block = block
        return known

    def demote(self, blocks: Many[CachedBlock]) -> None:
        """Remove these blocks from the device, children first. The host tier takes as many as fit, the last used
        ones."""
        room = self._host.free + len(self._on_host)
        split = max(0, len(blocks) - room)
        lost, kept = blocks[:split], blocks[split:]
        self.counters.device_evictions += len(blocks)
        if kept:
            while self._host.free < len(kept):
                self._evict_from_host()
            for block, slot in zip(kept, self._host.save([_place(b) for b in kept]), strict=True):
                block.host_slot = slot
                self._on_host[block] = None
        for block in blocks:
            block.block = None
        for block in lost:
            self._unlink(block)

    def promote(self, blocks: Many[CachedBlock], take: Callable[[int], list[int]]) -> None:
        """Copy blocks back from the host tier into `take(n)` device blocks."""
        for block in blocks:
            del self._on_host[block]  # or taking blocks may evict it
        places = take(len(blocks))
        self._host.load([_slot(b) for b in blocks], places)
        for block, place in zip(blocks, places, strict=True):
            block.block, block.host_slot = place, None

    def drop(self, block: CachedBlock) -> list[int]:
        """Drop a block and all that follow it; return the places on the device that held them."""
        places, pending = [], [block]
        while pending:
            dropped = pending.pop()
            pending += dropped.children
            if dropped.block is not None:
                places.append(dropped.block)
            else:
                self._release_host_slot(dropped)
            dropped.children.clear()
            self._unlink(dropped)
        return places

    def stats(self) -> PrefixStats:
        """Return the current statistics. Thread-safe."""
        counters, host = self.counters, self._host
        return PrefixStats(
            total=counters.total,
            tenants=counters.tenants,
            device_evictions=counters.device_evictions,
            host_evictions=counters.host_evictions,
            host_bytes_used=host.used * host.block_bytes,
            host_bytes=host.total * host.block_bytes,
        )

    def _content(self, sequence: Sequence, index: int) -> BlockContent:
        """Return the content of a block. One in which the adapter comes into effect is the adapter's, from that token
        on."""
        start, stop = index * self._block_size, (index + 1) * self._block_size
        adapter = sequence.adapter_at(stop - 1)
        since = max(0, sequence.adapter_from - start)
        name = f"{adapter.tenant_id}\0{adapter.digest}\0{since}".encode() if adapter is not None else b""
        return BlockContent(sequence.request.cache_salt, name, tuple(sequence.tokens[start:stop]))

    def _evict_from_host(self) -> None:
        block, _ = self._on_host.popitem(last=False)
        self._host.release([_slot(block)])
        block.host_slot = None
        self.counters.host_evictions += 1
        self._unlink(block)

    def _release_host_slot(self, block: CachedBlock) -> None:
        del self._on_host[block]
        self._host.release([_slot(block)])
        block.host_slot = None

    def _unlink(self, block: CachedBlock) -> None:
        assert not block.children, "a block was evicted before one that follows it"
        del self._known[block.hash]
        if block.parent is not None:
            block.parent.children.discard(block)
        block.dropped = True


def _place(block: CachedBlock) -> int:
    assert block.block is not None
    return block.block


def _slot(block: CachedBlock) -> int:
    assert block.host_slot is not None
    return block.host_slot


MAX_TENANTS = 1024
"""Tenants counted individually; the one that was idle longest is evicted and stays in the total."""


class PrefixCounters:
    """Counters written by the step thread; a snapshot may be taken on any thread."""

    def __init__(self) -> None:
        self.total = PrefixCounts()
        self.device_evictions = 0
        self.host_evictions = 0
        self._tenants: dict[str, PrefixCounts] = {}  # idle longest first

    @property
    def tenants(self) -> dict[str, PrefixCounts]:
        return self._tenants.copy()

    def add(self, tenant_id: str, counts: PrefixCounts) -> None:
        self.total += counts
        self._tenants[tenant_id] = self._tenants.pop(tenant_id, PrefixCounts()) + counts
        if len(self._tenants) > MAX_TENANTS:
            del self._tenants[next(iter(self._tenants))]
