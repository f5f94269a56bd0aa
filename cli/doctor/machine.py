"""Checks of Python, the processor, memory, disk and open files."""

import os
import platform
import resource
import shutil
import sys
from pathlib import Path

import psutil

from loragate.cli.doctor.finding import Finding, fail, ok, warn

_GIB = 1 << 30
_FILES = 4096
_CPU_INFO = Path("/proc/cpuinfo")
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_WIDE_FLAGS = frozenset({"avx512f", "asimd"})


def check_machine(data_dir: Path) -> list[Finding]:
    """Run the checks in the order in which they limit what can be served."""
    return [check_python(), check_cpu(cpu_flags()), check_cores(), check_memory(), check_disk(data_dir), check_files()]


def check_python() -> Finding:
    """Check that Python is 3.11 or newer."""
    found = f"{platform.python_version()} at {sys.executable}"
    return ok("Python", found) if sys.version_info >= (3, 11) else fail("Python", found, "use Python 3.11 or newer")


def check_cpu(flags: frozenset[str]) -> Finding:
    """Check for the vector instructions that the CPU kernels use."""
    wide, bf16 = flags & _WIDE_FLAGS, flags & _BF16_FLAGS
    found = f"{platform.machine()}, {', '.join(sorted(wide | bf16)) or 'no wide vector instructions'}"
    if not wide:
        return warn("CPU features", found, "AVX-512 would make the CPU path two to three times faster")
    if not bf16:
        return warn("CPU features", f"{found}, no bf16", "keep LORAGATE_ENGINE__DTYPE at auto or float32 on the CPU")
    return ok("CPU features", found)


def cpu_flags() -> frozenset[str]:
    """Return the processor's flags as the kernel lists them; empty if it does not."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def check_cores() -> Finding:
    """Check the cores that this process may use, in a container perhaps fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if cores < 2:
        return warn("cores", str(cores), "the gateway and the engine share one core: provide two or more")
    return ok("cores", str(cores))


def check_memory() -> Finding:
    """Check the free memory, which the model, its KV cache and the adapters share."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GIB:.1f} GiB free of {memory.total / _GIB:.1f}"
    if memory.available < 2 * _GIB:
        return warn("memory", found, "enough only for the demo; a model needs its size plus a quarter")
    return ok("memory", found)


def check_disk(data_dir: Path) -> Finding:
    """Check the disk, which holds adapters, their cache and the database."""
    there = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    found = f"{free / _GIB:.1f} GiB free at {there}"
    if not os.access(there, os.W_OK):
        return fail("disk", f"{there} is not writable", "choose another --data-dir")
    if free < _GIB // 4:
        return fail("disk", found, "free some space, or choose another --data-dir")
    if free < 4 * _GIB:
        return warn("disk", found, "uploads are rejected when it is full: keep space free for adapters")
    return ok("disk", found)


def check_files() -> Finding:
    """Check the limit on open files: each streamed response holds a connection."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < _FILES:
        return warn(
            "open files",
            f"at most {limit}",
            f"raise the limit (`ulimit -n {_FILES}`): every streamed response needs one",
        )
    return ok("open files", f"at most {limit}")
