"""Every kernel compiles for GPUs that are not present, and none spills registers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loragate.kernels import compile as ahead

ONE_OF_EACH = """
import sys
from loragate.kernels import compile as ahead
first = {}
for variant in ahead.variants():
    first.setdefault(variant.kernel, variant)
ahead.variants = lambda: list(first.values())
sys.argv = ["compile", "--target", "cuda:90"]
sys.exit(ahead.main())
"""
ALL = "import sys; from loragate.kernels.compile import main; sys.exit(main())"


def check_lines(lines: list[str]) -> None:
    """Assert that kernels which read much memory read it in wide loads."""
    reads_much = ("shrink", "expand", "experts", "attend", "prefill")
    few = 2  # of biases, or DoRA's scale and shift: one number a thread
    assert not [line for line in lines if line.startswith(reads_much) and int(line.split()[-3]) > few]


def test_one_variant_of_each_kernel_for_one_architecture() -> None:
    done = run(ONE_OF_EACH)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    assert len(lines) == len({variant.kernel for variant in ahead.variants()})
    check_lines(lines)


@pytest.mark.long
@pytest.mark.timeout(900)  # some 250 are compiled if none is cached
def test_all_kernels_for_all_architectures() -> None:
    done = run(ALL)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    assert len(lines) == len(ahead.variants()) * len(ahead.ARCHITECTURES)
    check_lines(lines)


ROOT = Path(__file__).parents[3]
FIND = (
    f"import sys; sys.path.append({str(ROOT)!r}); from benchmarks.lib import checkout;"
    " checkout.installed() or checkout.find_parts()"
)


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run outside Triton's interpreter, whether or not the project is installed."""
    script = f"{FIND}\n{script}"
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)


def test_a_kernel_that_spills_is_rejected() -> None:
    folder = Path(__file__).parent
    done = run(f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(folder)!r})
sys.argv = ["compile", "--target", "cuda:90"]
import spilling_kernel
from loragate.kernels import compile as ahead
ahead.KERNELS = (spilling_kernel,)
sys.exit(ahead.main())
""")
    assert done.returncode == 1, done.stderr
    assert "1 of 2 kernels spill registers" in done.stderr
    name, _, _, _, spilled, *_ = done.stdout.splitlines()[2].rsplit(maxsplit=8)
    assert name == "spills"
    assert int(spilled) > 0


def test_an_unknown_target_is_rejected_by_name() -> None:
    done = run(
        "import sys; sys.argv = ['compile', '--target', 'cuda:12']; from loragate.kernels.compile import main; main()"
    )
    assert done.returncode == 2
    assert "cuda:12" in done.stderr


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "expected"),
    [(32, 0, 4, 1.0), (128, 0, 4, 0.25), (32, 100 << 10, 4, 0.125), (255, 0, 8, 0.125)],
)
def test_occupancy(registers: int, shared: int, warps: int, expected: float) -> None:
    """Occupancy is limited by registers, by shared memory, and by the number of blocks, as in NVIDIA's occupancy
    calculator.
    """
    compiled = ahead.Compiled(registers, shared, 0)
    assert compiled.occupancy(ahead.ARCHITECTURES[90], warps) == expected
