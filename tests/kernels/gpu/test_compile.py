"""Every kernel compiles for GPUs that are not present, spills no registers, and keeps to its bound."""

import json
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
SHRINK = "shrink bfloat16 rows16 k128 splits8"
LOOPS = """
import sys
from loragate.kernels.compile import main
sys.argv = ["compile", "--target", "cuda:90", "--loops"]
sys.exit(main())
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
    assert len(lines) == sum(arch >= variant.min_arch for variant in ahead.variants() for arch in ahead.ARCHITECTURES)
    check_lines(lines)


def test_innermost_loops_keep_to_their_bounds_and_stand_in_the_docs() -> None:
    done = run(LOOPS)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert len(rows) == len(ahead.LOOP_HEADER) + len(json.loads(ahead.BOUNDS.read_text())[ahead.place(90)])
    assert set(rows) <= set((ROOT / "docs" / "performance.md").read_text().splitlines()), done.stdout


def test_a_kernel_below_its_bound_is_rejected_and_bounds_only_rise(tmp_path: Path) -> None:
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps({ahead.place(90): {"rms norm bfloat16 128": 1e6, SHRINK: 1}}))
    setup = f"from pathlib import Path; from loragate.kernels import compile; compile.BOUNDS = Path({str(bounds)!r})\n"
    done = run(setup + LOOPS.replace("--loops", "--raise"))
    assert done.returncode == 1
    assert "1 of 2 kernels fall below their bound" in done.stderr
    raised = json.loads(bounds.read_text())[ahead.place(90)]
    assert raised["rms norm bfloat16 128"] == 1e6
    assert raised[SHRINK] > 1


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
    name, _, _, _, spilled, *_ = done.stdout.splitlines()[2].rsplit(maxsplit=11)
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
