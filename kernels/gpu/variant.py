"""What of a Triton kernel is compiled ahead of time: one set of types and constants, and what a typical launch does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "int64": "*i64",
    "int8": "*i8",
    "float8_e4m3fn": "*u8",  # its bits, see `eight_bits`
}
"""Triton's names of pointers to these types."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel as it is launched. `signature` gives Triton's type of each argument that is no constant."""

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    read_bytes: int  # of a typical launch, which the name tells
    flops: int
    warps: int = 4
    stages: int = 3
    aligned: frozenset[str] = frozenset()  # arguments that are multiples of 16
