"""Checks of what Triton needs to compile kernels, which it does when they are first used."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from loragate.cli.doctor.finding import Finding, fail, ok, warn

_OLDEST = (8, 0)


def capability_finding(name: str, capability: tuple[int, int]) -> Finding:
    """Judge a GPU by its compute capability: the kernels use bfloat16 and asynchronous copies, which came with 8.0."""
    found = f"{name}, compute capability {'.'.join(map(str, capability))}"
    if capability < _OLDEST:
        return fail("GPU", found, "use a GPU of 8.0 (A100) or newer, or compute with LORAGATE_ENGINE__DEVICE=cpu")
    return ok("GPU", found)


def compiler_finding(environment: Mapping[str, str], headers: Path) -> Finding:
    """Check the C compiler, Python's headers and the folder for compiled kernels, as Triton looks for them."""
    compiler = environment.get("CC") or _on_path("gcc", environment) or _on_path("clang", environment)
    if compiler is None or _on_path(compiler, environment) is None:
        return fail("kernels", f"no C compiler ({compiler or 'gcc or clang'})", "install gcc, or name one in CC")
    if not (headers / "Python.h").is_file():
        return fail("kernels", f"no Python.h in {headers}", "install Python's headers (python3-dev on Debian)")
    cache = _cache(environment)
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if not os.access(there, os.W_OK):
        return fail("kernels", f"{cache} is not writable", "name a writable folder in TRITON_CACHE_DIR")
    return ok("kernels", f"compiled at first use with {compiler}, kept in {cache}")


def check_gpu_kernels(*, triton: bool) -> Finding:
    """Check that kernels can be compiled on this machine, which has a GPU."""
    if not triton:
        return warn("kernels", "torch on the GPU", "install triton for the kernels, which are much faster")
    return compiler_finding(os.environ, Path(sysconfig.get_paths()["include"]))


def _on_path(name: str, environment: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=environment.get("PATH"))


def _cache(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("TRITON_HOME") or environment.get("HOME") or Path.home())
    return Path(environment.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
