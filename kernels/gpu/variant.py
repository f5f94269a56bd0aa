"""A Triton kernel as it is compiled ahead of time: types, constants, and the work of a typical launch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POINTERS = {
    "float32": "*fp32",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float64": "*fp64",
    "int64": "*i64",
    "int32": "*i32",
    "int8": "*i8",
    "float8_e4m3fn": "*i8",  # its bits, see `quantization`
}
"""Triton's names of pointers to these types."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel as it is launched. `signature` gives Triton's type of each argument that is not a constant."""

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    read_bytes: int  # of a typical launch, which `name` describes
    flops: int
    loop_bytes: int = 0  # of weights or of the cache, that a block reads in an iteration of its innermost loop
    iterations: int = 1  # of that loop, in a block of the launch
    warps: int = 4
    stages: int = 3
    min_arch: int = 0
    aligned: frozenset[str] = frozenset()  # arguments that are multiples of 16
