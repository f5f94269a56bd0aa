"""BD-LoRA's part of the config: the factors that are stored as their diagonal blocks."""

from dataclasses import dataclass

from loragate.peft_format.config import json_fields
from loragate.peft_format.errors import clipped, in_config

_FIELD = "use_bdlora"
_MAX_NAMES = 256
_KNOWN = frozenset({"target_modules_bd_a", "target_modules_bd_b", "nblocks", "match_strict"})


@dataclass(frozen=True)
class BlockDiagonal:
    """PEFT's `BdLoraConfig`.

    Attributes:
        of_a, of_b: a module whose name contains one of these has a block-diagonal A, or B; sorted.
        blocks: how many blocks each such factor has.
        strict: every targeted module must be named by one of the two.
    """

    of_a: tuple[str, ...]
    of_b: tuple[str, ...]
    blocks: int
    strict: bool

    def blocks_of(self, module: str) -> tuple[int, int]:
        """Return the numbers of blocks in the module's A and B; raises AdapterRejected where PEFT does."""
        in_a, in_b = (any(part in module for part in parts) for parts in (self.of_a, self.of_b))
        if in_a and in_b:
            raise in_config(_FIELD, f"use_bdlora makes both A and B of {module} block-diagonal; only one may be.")
        if self.strict and not in_a and not in_b:
            raise in_config(
                _FIELD, f"use_bdlora names neither A nor B of {module}; set match_strict to false if that is meant."
            )
        return (self.blocks if in_a else 1, self.blocks if in_b else 1)


def parse_block_diagonal(value: object) -> BlockDiagonal | None:
    """Parse the value of `use_bdlora`; raises AdapterRejected."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise in_config(_FIELD, "use_bdlora must be an object or null.")
    for key in value:
        if key not in _KNOWN:
            raise in_config(_FIELD, f"use_bdlora holds {clipped(key)}, which PEFT 0.21 does not write; remove it.")
    return BlockDiagonal(
        of_a=tuple(sorted(set(json_fields.names(value.get("target_modules_bd_a"), _FIELD, _MAX_NAMES)))),
        of_b=tuple(sorted(set(json_fields.names(value.get("target_modules_bd_b"), _FIELD, _MAX_NAMES)))),
        blocks=json_fields.positive_integer(value.get("nblocks", 1), _FIELD),
        strict=json_fields.boolean({"match_strict": True} | value, "match_strict"),
    )
