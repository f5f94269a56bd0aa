"""Compile every Triton kernel for GPUs that need not be present, and print the resources that each one uses.

    python -m loragate.kernels.compile                                      # sm_80, sm_89, sm_90 and sm_100
    python -m loragate.kernels.compile --target cuda:80 --target cuda:90    # some of them
    python -m loragate.kernels.compile --target cuda:90 --loops             # the table in docs/performance.md
    python -m loragate.kernels.compile --raise                              # record higher bounds

"narrow" counts the instructions that read at most two bytes. A kernel that reads its weights with them neither reads 16
bytes at once nor prefetches. "in flight" are the bytes that the blocks of a multiprocessor have asked of memory while
they compute. "loop" is the number of instructions of an iteration of the innermost loop. "B/instr" decides whether a
kernel can be as fast as the memory: the bytes of weights or of the cache for each instruction that a warp executes. A
multiprocessor of an H100 issues four a cycle at the very most, and two in practice; at 3 TB/s 13 bytes arrive in one.

The exit status is 1 if a kernel spills more registers to memory than SPILLED says, does not compile, or falls below its
bound in `bounds.json`.
"""

import argparse
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)  # an interpreted kernel cannot be compiled
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # the default; Triton warns when it is not set

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from loragate.kernels.gpu import (
    decode_attention,
    gated,
    grouped_experts,
    kv_write,
    prefill_attention,
    quantize_rows,
    rms_norm,
    rotary,
    sampling,
    segmented_lora,
)
from loragate.kernels.gpu.variant import Variant
from loragate.kernels.machine_code import WARP, Loop, disassemble, innermost_loop

KERNELS = (
    segmented_lora,
    grouped_experts,
    kv_write,
    decode_attention,
    prefill_attention,
    rms_norm,
    rotary,
    gated,
    quantize_rows,
    sampling,
)
BOUNDS = Path(__file__).with_name("bounds.json")
"""Bytes for each instruction that a kernel must reach, by version of Triton, architecture and name. They only rise."""


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Resources that the blocks of one streaming multiprocessor share (CUDA C++ Programming Guide, "Compute
    Capabilities")."""

    shared_bytes: int
    registers: int = 65536
    warps: int = 64
    blocks: int = 32


ARCHITECTURES = {
    80: Multiprocessor(164 << 10),
    89: Multiprocessor(100 << 10, warps=48, blocks=24),
    90: Multiprocessor(228 << 10),
    100: Multiprocessor(228 << 10),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's use of resources as reported by ptxas, and its innermost loop."""

    registers: int  # per thread
    shared_bytes: int  # per block
    spilled_bytes: int  # per thread, stores and loads
    narrow_loads: int = 0  # instructions that read one or two bytes of the GPU's memory
    loop: Loop | None = None

    def blocks(self, on: Multiprocessor, warps: int) -> int:
        """Return the number of blocks of so many warps that a multiprocessor runs at once."""
        by_registers = on.registers // (-(-self.registers // 8) * 8 * WARP * warps)
        by_shared = on.shared_bytes // (self.shared_bytes + 1024)  # each block also takes one kilobyte of its own
        return min(by_registers, by_shared, on.blocks, on.warps // warps)

    def occupancy(self, on: Multiprocessor, warps: int) -> float:
        """Return the share of the multiprocessor's warps that can be in flight."""
        return self.blocks(on, warps) * warps / on.warps


@dataclass(frozen=True, slots=True)
class Report:
    """A variant as it was compiled for an architecture."""

    variant: Variant
    arch: int
    compiled: Compiled

    @property
    def bytes_per_instruction(self) -> float | None:
        """The useful bytes that a block reads for each instruction of a warp, or None if they are not known."""
        loop, variant = self.compiled.loop, self.variant
        if loop is None or not variant.loop_bytes:
            return None
        instructions = loop.outside + loop.instructions * variant.iterations
        return variant.loop_bytes * variant.iterations / variant.warps / instructions

    @property
    def bytes_in_flight(self) -> int:
        """The useful bytes that a multiprocessor has asked for ahead of their use."""
        blocks = self.compiled.blocks(ARCHITECTURES[self.arch], self.variant.warps)
        return blocks * (self.variant.stages - 1) * self.variant.loop_bytes

    def spills_more(self) -> bool:
        """Return whether it spills more registers than is known of it."""
        return self.compiled.spilled_bytes > SPILLED.get((self.arch, self.variant.name), 0)

    def falls_below(self, bounds: Mapping[str, Mapping[str, float]]) -> bool:
        bound = bounds.get(place(self.arch), {}).get(self.variant.name, 0.0)
        return (self.bytes_per_instruction or 0.0) < bound


def place(arch: int) -> str:
    """Return the section of the bounds for an architecture."""
    return f"triton {'.'.join(triton.__version__.split('.')[:2])}, sm_{arch}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    targets = {f"cuda:{arch}": arch for arch in ARCHITECTURES}
    parser.add_argument("--target", action="append", choices=list(targets), help="default: all")
    parser.add_argument(
        "--loops", action="store_true", help="the innermost loops of the kernels with a bound, in Markdown"
    )
    parser.add_argument("--raise", action="store_true", dest="raises", help="raise recorded bounds to what was found")
    arguments = parser.parse_args()
    archs = [targets[target] for target in arguments.target or targets]
    everything = {variant.name: variant for variant in variants()}
    jobs = [(name, arch) for arch in archs for name, variant in everything.items() if arch >= variant.min_arch]
    bounds = json.loads(BOUNDS.read_text())
    if arguments.loops or arguments.raises:
        jobs = [(name, arch) for name, arch in jobs if name in bounds.get(place(arch), ())]
    print("\n".join(LOOP_HEADER) if arguments.loops else _line(*HEADER))
    reports = []
    with ProcessPoolExecutor() as pool:
        for (name, arch), compiled in zip(jobs, pool.map(_compile_at, *zip(*jobs, strict=True)), strict=True):
            reports.append(Report(everything[name], arch, compiled))
            print(loop_row(reports[-1]) if arguments.loops else _row(reports[-1]), flush=True)
    if arguments.raises:
        _raise(bounds, reports)
    problems = {
        "spill registers": sum(report.spills_more() for report in reports),
        "fall below their bound": sum(report.falls_below(bounds) for report in reports),
    }
    for problem, count in problems.items():
        if count:
            print(f"{count} of {len(jobs)} kernels {problem}", file=sys.stderr)
    return 1 if any(problems.values()) else 0


SPILLED = {  # bytes per thread that the pinned Triton's ptxas spills; a kernel may not spill more
    (80, "expand bfloat16 rows16 n128 splits8"): 16,
    (80, "expand float32 rows16 n128 splits8"): 16,
    (90, "expand float32 rows16 n128 splits8"): 16,
    (90, "expand float32 dependent rows16 n128 splits8"): 8,
    (100, "attend bfloat16 over float8_e4m3fn 32/8 heads of 128"): 32,
    (100, "attend bfloat16 over float8_e4m3fn by its bits 16/8 heads of 256"): 8,
}
HEADER = (
    *("kernel", "sm", "registers", "shared, B", "spilled, B", "occupancy", "in flight", "loop", "B/instr"),
    *("narrow", "MB", "GFLOP"),
)
LOOP_HEADER = (
    "| kernel | registers | blocks | KB in flight | instructions of the loop; outside | loads in the loop, by bytes "
    "of a thread | bytes per instruction |",
    "|---|---|---|---|---|---|---|",
)


def _row(report: Report) -> str:
    variant, compiled, found = report.variant, report.compiled, report.bytes_per_instruction
    return _line(
        *(variant.name, report.arch, compiled.registers, compiled.shared_bytes, compiled.spilled_bytes),
        f"{compiled.occupancy(ARCHITECTURES[report.arch], variant.warps):.0%}",
        report.bytes_in_flight or "-",
        compiled.loop.instructions if compiled.loop else "-",
        f"{found:.2f}" if found else "-",
        compiled.narrow_loads,
        f"{variant.read_bytes / 1e6:.2f}",
        f"{variant.flops / 1e9:.3f}",
    )


def _line(name: str, *cells: object) -> str:
    return f"{name:52}" + "".join(f"{cell!s:>11}" for cell in cells)


def loop_row(report: Report) -> str:
    """Return the row of a kernel in the table of innermost loops."""
    loop = report.compiled.loop
    assert loop is not None, report.variant.name
    cells = (
        report.variant.name,
        report.compiled.registers,
        report.compiled.blocks(ARCHITECTURES[report.arch], report.variant.warps),
        report.bytes_in_flight >> 10,
        f"{loop.instructions}; {loop.outside}",
        ", ".join(f"{count} of {width}" for width, count in loop.loads.items()),
        f"{report.bytes_per_instruction:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _raise(bounds: Mapping[str, dict[str, float]], reports: Sequence[Report]) -> None:
    """Record what was found, rounded down, where it is higher than the bound."""
    for report in reports:
        section, found = bounds[place(report.arch)], report.bytes_per_instruction or 0.0
        section[report.variant.name] = max(section[report.variant.name], math.floor(found * 10) / 10)
    BOUNDS.write_text(json.dumps(bounds, indent=2) + "\n")


def variants() -> list[Variant]:
    """Return the variants of all kernels."""
    return [variant for module in KERNELS for variant in module.variants()]


def compile_kernel(variant: Variant, arch: int) -> Any:
    """Return a variant as Triton compiles it for an architecture, without a report of its resources."""
    order = variant.kernel.arg_names
    signature = {name: variant.signature.get(name, "constexpr") for name in order}
    attributes = {(order.index(name),): [["tt.divisibility", 16]] for name in variant.aligned}
    source = ASTSource(variant.kernel, signature, dict(variant.constants), attributes)
    options = {"num_warps": variant.warps, "num_stages": variant.stages}
    return triton.compile(source, target=GPUTarget("cuda", arch, WARP), options=options)


def compile_variant(variant: Variant, arch: int) -> Compiled:
    """Compile one kernel for one architecture."""
    os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
    with redirect_stdout(io.StringIO()) as output:
        kernel = compile_kernel(variant, arch)
    log = output.getvalue()  # from the ptxas that Triton ran; empty if the kernel was in Triton's cache
    numbers = _resources(log if re.search(_PTXAS[0], log) else _run_ptxas(kernel.asm["ptx"], arch))
    narrow = len(re.findall(_NARROW, kernel.asm["ptx"]))
    loop = innermost_loop(disassemble(kernel.asm["cubin"]))
    return Compiled(numbers[0], kernel.metadata.shared, numbers[1] + numbers[2], narrow, loop)


def _resources(log: str) -> list[int]:
    return [int(re.search(pattern, log)[1]) for pattern in _PTXAS]  # type: ignore[index]


def _run_ptxas(ptx: str, arch: int) -> str:
    """Return the log of ptxas, which needs no GPU; Triton learns of registers only when a GPU loads the kernel."""
    target = re.search(r"^\.target (sm_\w+)", ptx, re.MULTILINE)
    assert target is not None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.ptx"
        path.write_text(ptx)
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={target[1]}", path, "-o", path.with_suffix(".cubin")]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ptxas rejected a kernel for sm_{arch}: {done.stderr}")
    return done.stderr


_NARROW = r"ld\.global(?:\.(?!v\d)[\w:]+)*\.[bu](?:8|16)\b"
_PTXAS = (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes spill loads")


def _compile_at(name: str, arch: int) -> Compiled:
    """Compile the variant of this name; kernels themselves cannot be sent to other processes."""
    return compile_variant({variant.name: variant for variant in variants()}[name], arch)


if __name__ == "__main__":
    sys.exit(main())
