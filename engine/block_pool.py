"""Pages of the KV cache: fixed blocks of token places, handed out and taken back."""

import numpy as np

from loragate.engine.sequence import Sequence


class BlockPool:
    """Block 0 is the null block: its places hold zeros, padding points there, and nobody is ever given it."""

    def __init__(self, blocks: int, block_size: int) -> None:
        assert blocks >= 1
        self.block_size = block_size
        self.total = blocks
        self._free = list(range(blocks, 0, -1))
        self._offsets = np.arange(block_size, dtype=np.int64)

    @property
    def places(self) -> int:
        """Token places in the cache, those of the null block included."""
        return (self.total + 1) * self.block_size

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Give the sequence room for `tokens` in all; False, and nothing given, if there is not enough."""
        missing = self.blocks_for(tokens) - len(sequence.blocks)
        if missing <= 0:
            return True
        if missing > len(self._free):
            return False
        new = [self._free.pop() for _ in range(missing)]
        sequence.blocks += new
        starts = np.array(new, dtype=np.int64)[:, None] * self.block_size
        sequence.places = np.concatenate([sequence.places, (starts + self._offsets).reshape(-1)])
        return True

    def release(self, sequence: Sequence) -> None:
        self._free += reversed(sequence.blocks)
        sequence.blocks = []
        sequence.places = sequence.places[:0]
