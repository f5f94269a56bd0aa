"""Compile every Triton kernel for GPUs that need not be present, and print the resources that each one uses.

    python -m loragate.kernels.compile                                      # sm_80, sm_90 and sm_100
    python -m loragate.kernels.compile --target cuda:80 --target cuda:90    # some of them

"narrow" counts the instructions that read at most two bytes. A kernel that reads its weights with them neither reads 16
bytes at once nor prefetches.

The exit status is 1 if a kernel spills registers to memory or does not compile.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

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
    rms_norm,
    rotary,
    segmented_lora,
)
from loragate.kernels.gpu.variant import Variant

KERNELS = (segmented_lora, grouped_experts, kv_write, decode_attention, prefill_attention, rms_norm, rotary, gated)
_WARP = 32  # threads


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
    90: Multiprocessor(228 << 10),
    100: Multiprocessor(228 << 10),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """Resource usage of a kernel as reported by ptxas."""

    registers: int  # per thread
    shared_bytes: int  # per block
    spilled_bytes: int  # per thread, stores and loads
    narrow_loads: int = 0  # instructions that read one or two bytes of the GPU's memory

    def occupancy(self, on: Multiprocessor, warps: int) -> float:
        """Return the share of the multiprocessor's warps that can be in flight."""
        by_registers = on.registers // (-(-self.registers // 8) * 8 * _WARP * warps)
        by_shared = on.shared_bytes // (self.shared_bytes + 1024)  # each block also takes one kilobyte of its own
        return min(by_registers, by_shared, on.blocks, on.warps // warps) * warps / on.warps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    targets = {f"cuda:{arch}": arch for arch in ARCHITECTURES}
    parser.add_argument("--target", action="append", choices=list(targets), help="default: all")
    chosen = parser.parse_args().target or list(targets)
    everything = variants()
    jobs = [(index, targets[target]) for target in chosen for index in range(len(everything))]
    print(_line("kernel", "sm", "registers", "shared, B", "spilled, B", "occupancy", "narrow", "MB", "GFLOP"))
    spilled = 0
    with ProcessPoolExecutor() as pool:
        for (index, arch), compiled in zip(jobs, pool.map(_compile_at, *zip(*jobs, strict=True)), strict=True):
            variant = everything[index]
            occupancy = compiled.occupancy(ARCHITECTURES[arch], variant.warps)
            numbers = (
                compiled.registers,
                compiled.shared_bytes,
                compiled.spilled_bytes,
                f"{occupancy:.0%}",
                compiled.narrow_loads,
            )
            print(
                _line(variant.name, arch, *numbers, f"{variant.read_bytes / 1e6:.2f}", f"{variant.flops / 1e9:.3f}"),
                flush=True,
            )
            spilled += compiled.spilled_bytes > 0
    if spilled:
        print(f"{spilled} of {len(jobs)} kernels spill registers", file=sys.stderr)
    return 1 if spilled else 0


def _line(name: str, *cells: object) -> str:
    return f"{name:52}" + "".join(f"{cell!s:>11}" for cell in cells)


def variants() -> list[Variant]:
    """Return the variants of all kernels."""
    return [variant for module in KERNELS for variant in module.variants()]


def compile_variant(variant: Variant, arch: int) -> Compiled:
    """Compile one kernel for one architecture."""
    os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
    order = variant.kernel.arg_names
    signature = {name: variant.signature.get(name, "constexpr") for name in order}
    attributes = {(order.index(name),): [["tt.divisibility", 16]] for name in variant.aligned}
    source = ASTSource(variant.kernel, signature, dict(variant.constants), attributes)
    options = {"num_warps": variant.warps, "num_stages": variant.stages}
    with redirect_stdout(io.StringIO()) as output:
        kernel = triton.compile(source, target=GPUTarget("cuda", arch, _WARP), options=options)
    log = output.getvalue()  # from the ptxas that Triton ran; empty if the kernel was in Triton's cache
    numbers = _resources(log if re.search(_PTXAS[0], log) else _run_ptxas(kernel.asm["ptx"], arch))
    narrow = len(re.findall(_NARROW, kernel.asm["ptx"]))
    return Compiled(numbers[0], kernel.metadata.shared, numbers[1] + numbers[2], narrow)


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


def _compile_at(index: int, arch: int) -> Compiled:
    """Compile the variant at this index; kernels themselves cannot be sent to other processes."""
    return compile_variant(variants()[index], arch)


if __name__ == "__main__":
    sys.exit(main())
