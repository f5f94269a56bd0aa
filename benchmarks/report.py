"""What every benchmark leaves behind: its figures, the machine they were taken on, and the command that made them."""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("torch", "transformers", "peft")


def machine() -> dict[str, Any]:
    """The hardware and the versions that figures depend on."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def figures_of(name: str) -> dict[str, Any]:
    """What an earlier run kept; nothing before the first."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def write(name: str, figures: Any) -> Path:
    """Keep the figures under benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    report = {
        "benchmark": name,
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "figures": figures,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
