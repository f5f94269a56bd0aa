"""The report of a benchmark: its figures, the machine that they were measured on, and the command."""

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parents[1] / "results"
_PACKAGES = ("torch", "triton", "transformers", "peft")
_STATE = (
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks.max.mem",
    "temperature.gpu",
    "power.draw",
)


def machine() -> dict[str, Any]:
    """Return the hardware and the versions that the figures depend on."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        **_gpu(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def gpu_state() -> dict[str, str]:
    """Return the GPU's driver, clocks, temperature and power at the moment; an empty dict without a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None or not torch.cuda.is_available():
        return {}
    command = [tool, "-i", "0", f"--query-gpu={','.join(_STATE)}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    values = [each.strip() for each in done.stdout.strip().split(",")]
    return dict(zip(_STATE, values, strict=False)) if not done.returncode else {}


def _gpu() -> dict[str, Any]:
    """Return the properties of the GPU that its figures depend on."""
    if not torch.cuda.is_available():
        return {}
    device = torch.cuda.get_device_properties(0)
    return {
        "cuda": torch.version.cuda,
        "multiprocessors": device.multi_processor_count,
        "gpu_bytes": device.total_memory,
        "l2_bytes": device.L2_cache_size,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def load_figures(name: str) -> dict[str, Any]:
    """Return the figures of the last run; an empty dict before the first."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def write(name: str, figures: Any) -> Path:
    """Write the report to benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(about(name) | {"figures": figures}, indent=2) + "\n")
    return path


def about(name: str) -> dict[str, Any]:
    """Return the fields of this run's report above the figures."""
    return {
        "benchmark": name,
        "command": " ".join(["python", "-m", _module(), *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
    }


def _module() -> str:
    """Return the name that `python -m` was given; the program's path without one."""
    spec = sys.modules["__main__"].__spec__
    return sys.argv[0] if spec is None else spec.name.removesuffix(".__main__")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
