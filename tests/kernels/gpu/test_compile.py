"""Every kernel compiles for GPUs that are not here, and none spills registers."""

import os
import subprocess
import sys

import pytest

from loragate.kernels import compile as ahead


def test_all_kernels_for_all_architectures() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "loragate.kernels.compile"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    assert len(lines) == len(ahead.variants()) * len(ahead.ARCHITECTURES)


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "expected"),
    [(32, 0, 4, 1.0), (128, 0, 4, 0.25), (32, 100 << 10, 4, 0.125), (255, 0, 8, 0.125)],
)
def test_occupancy(registers: int, shared: int, warps: int, expected: float) -> None:
    """By registers, by shared memory, and by the number of blocks, as NVIDIA's occupancy calculator has it."""
    compiled = ahead.Compiled(registers, shared, 0)
    assert compiled.occupancy(ahead.ARCHITECTURES[90], warps) == expected
