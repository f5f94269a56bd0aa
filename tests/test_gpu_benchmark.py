"""The command for whoever has a GPU runs to its end without one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_all_stages_in_the_interpreter(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
    subprocess.run(
        [sys.executable, script, "--out", tmp_path, "--work", tmp_path, "--interpret", "--tiny"],
        check=True,
        timeout=1200,
    )
    for stage in ("check", "time", "answers", "serve", "cold"):
        assert json.loads((tmp_path / f"gpu_{stage}.json").read_text())["figures"]
