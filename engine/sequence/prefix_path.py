"""The content that a block of keys and values is computed from, and a sequence's path through the cached blocks."""

import struct
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class BlockContent:
    """Everything that determines a block's keys and values, except the blocks before it and the base model."""

    salt: bytes  # of the tenant
    adapter: bytes  # what computed it: tenant, digest, and the token from which it is active; empty for the base model
    tokens: tuple[int, ...]


@dataclass(eq=False, slots=True)
class CachedBlock:
    """A full block after a known prefix.

    It is on the device or in the host tier; one that is in neither is `dropped`, and nothing may follow it.
    """

    hash: bytes
    parent: "CachedBlock | None"
    content: BlockContent
    block: int | None
    host_slot: int | None = None
    children: "set[CachedBlock]" = field(default_factory=set)
    dropped: bool = False

    def is_for(self, parent: "CachedBlock | None", content: BlockContent) -> bool:
        """Return whether it was computed from exactly this content, regardless of hashes."""
        return self.parent is parent and self.content == content


@dataclass(eq=False, slots=True)
class PrefixPath:
    """The path of one sequence: the hashes of its full blocks as far as they were needed, and the cached blocks it
    holds."""

    open: bool  # its next block may be looked up and published; once closed, it stays closed
    hashes: list[bytes] = field(default_factory=list)
    held: list[CachedBlock] = field(default_factory=list)  # in place of its first blocks
    counted: bool = False  # its prompt was counted as a lookup


def root_hash(salt: bytes, base_digest: str) -> bytes:
    """Return the hash that precedes the first block."""
    return sha256(b"loragate prefix" + struct.pack("<Q", len(salt)) + salt + base_digest.encode()).digest()


def block_hash(parent: bytes, adapter: bytes, tokens: Tokens[int]) -> bytes:
    """Return the SHA-256 of everything that a block's keys and values depend on; `parent` is the hash of what precedes
    it."""
    head = parent + struct.pack("<Q", len(adapter)) + adapter
    return sha256(head + struct.pack(f"<{len(tokens)}I", *tokens)).digest()
