"""What a block of keys and values was computed from, and a sequence's way through the blocks that are cached."""

import struct
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class BlockContent:
    """Everything that decides a block's keys and values, but for the blocks before it and the base model."""

    salt: bytes  # the tenant's
    adapter: bytes  # who computed it: tenant, digest, and from which of its tokens on; empty: the base model
    tokens: tuple[int, ...]


@dataclass(eq=False, slots=True)
class CachedBlock:
    """A full block behind a known prefix. It lies on the device or in the host tier; one that is in neither is
    `dropped`, and nothing may follow it."""

    hash: bytes
    parent: "CachedBlock | None"
    content: BlockContent
    block: int | None
    host_slot: int | None = None
    children: "set[CachedBlock]" = field(default_factory=set)
    dropped: bool = False

    def is_for(self, parent: "CachedBlock | None", content: BlockContent) -> bool:
        """Whether it was computed from exactly this, whatever the hashes say."""
        return self.parent is parent and self.content == content


@dataclass(eq=False, slots=True)
class PrefixPath:
    """Of one sequence: the hashes of its full blocks as far as they were wanted, and the cached blocks it holds."""

    open: bool  # its next block may be looked up, and published; once closed it stays so
    hashes: list[bytes] = field(default_factory=list)
    held: list[CachedBlock] = field(default_factory=list)  # in place of its first blocks
    counted: bool = False  # its prompt was counted as looked up


def root_hash(salt: bytes, base_digest: str) -> bytes:
    """What stands in front of the first block."""
    return sha256(b"loragate prefix" + struct.pack("<Q", len(salt)) + salt + base_digest.encode()).digest()


def block_hash(parent: bytes, adapter: bytes, tokens: Tokens[int]) -> bytes:
    """SHA-256 over all that a block's keys and values depend on; `parent` stands for what came before."""
    head = parent + struct.pack("<Q", len(adapter)) + adapter
    return sha256(head + struct.pack(f"<{len(tokens)}I", *tokens)).digest()
