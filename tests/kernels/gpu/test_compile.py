"""Every kernel compiles for GPUs that are not present, spills no more registers than known, keeps to its bound."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from loragate.kernels import compile as ahead

SHRINK = "shrink bfloat16 rows16 k128 splits8"
THREE_REPORTS = """
import io, json, sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from loragate.kernels import compile as ahead

def report(*options):
    sys.argv = ["compile", "--target", "cuda:90", *options]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        status = ahead.main()
    return [status, out.getvalue(), errors.getvalue()]

ahead.ProcessPoolExecutor = lambda: nullcontext(SimpleNamespace(map=map))
ahead._compile_at = cache(ahead._compile_at)  # some kernels are in several reports
variants, first = ahead.variants, {}
for variant in variants():
    first.setdefault(variant.kernel, variant)
ahead.variants = lambda: list(first.values())
found = {"one of each": report()}
ahead.variants = variants
found["loops"] = report("--loops")
ahead.BOUNDS = Path(BOUNDS)
found["raised"] = report("--raise")
print(json.dumps(found))
"""
LOOPS = """
import sys
from loragate.kernels import compile as ahead
print(ahead.place(90), flush=True)
sys.argv = ["compile", "--loops"]
sys.exit(ahead.main())
"""
ALL = "import sys; from loragate.kernels.compile import main; sys.exit(main())"


def check_lines(lines: list[str]) -> None:
    """Assert that kernels which read much memory read it in wide loads."""
    reads_much = ("shrink", "expand", "experts", "attend", "prefill")
    assert not [line for line in lines if line.startswith(reads_much) and int(line.split()[-3]) > few(line)]


def few(line: str) -> int:
    """Return how many narrow loads a kernel may have: of biases, or of DoRA's scale and shift.

    Two of expand's loops have the latter. In tiles of 256 columns they compute 128, one for each thread.
    """
    return 4 if " n256 " in line else 2


@pytest.fixture(scope="module")
def bounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a bound that no kernel reaches, and one that a kernel exceeds."""
    path = tmp_path_factory.mktemp("bounds") / "bounds.json"
    path.write_text(json.dumps({ahead.place(90): {"rms norm bfloat16 128": 1e6, SHRINK: 1}}))
    return path


@pytest.fixture(scope="module")
def reports(bounds: Path) -> dict[str, tuple[int, str, str]]:
    """The status, the output and the errors of three reports: on one variant of each kernel, on the innermost loops,
    and on the kernels in `bounds`, which it raises."""
    done = run(f"BOUNDS = {str(bounds)!r}\n{THREE_REPORTS}")
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: tuple(found) for name, found in json.loads(done.stdout).items()}


def test_one_variant_of_each_kernel_for_one_architecture(reports: dict[str, tuple[int, str, str]]) -> None:
    status, output, errors = reports["one of each"]
    assert status == 0, output + errors
    lines = output.splitlines()[1:]
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


def test_innermost_loops_keep_to_their_bounds_and_stand_in_the_docs(reports: dict[str, tuple[int, str, str]]) -> None:
    status, output, errors = reports["loops"]
    assert status == 0, errors
    rows = output.splitlines()
    assert len(rows) == len(ahead.LOOP_HEADER) + len(json.loads(ahead.BOUNDS.read_text())[ahead.place(90)])
    assert set(rows) <= set((ROOT / "docs" / "performance.md").read_text().splitlines()), output


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["pinned", "3.6"])
def test_innermost_loops_keep_to_their_bounds_on_every_architecture(version: str) -> None:
    """TRITON_BESIDE names a folder that `pip install --target FOLDER --no-deps triton==3.6.0` has filled."""
    folder = os.environ.get("TRITON_BESIDE", "")
    if version == "3.6" and not folder:
        pytest.skip("TRITON_BESIDE does not name a folder with Triton 3.6")
    done = run(LOOPS, {"PYTHONPATH": folder} if version == "3.6" else {})
    section, *rows = done.stdout.splitlines()
    assert version in ("pinned", section.split()[1].rstrip(",")), f"found {section}"
    sections = [section.replace("sm_90", f"sm_{arch}") for arch in ahead.ARCHITECTURES]
    bounds = json.loads(ahead.BOUNDS.read_text())
    assert len(rows) == len(ahead.LOOP_HEADER) + sum(len(bounds[each]) for each in sections), done.stderr
    assert "fall below" not in done.stderr, done.stdout


def test_a_kernel_below_its_bound_is_rejected_and_bounds_only_rise(
    bounds: Path, reports: dict[str, tuple[int, str, str]]
) -> None:
    status, _, errors = reports["raised"]
    assert status == 1
    assert "1 of 2 kernels fall below their bound" in errors
    raised = json.loads(bounds.read_text())[ahead.place(90)]
    assert raised["rms norm bfloat16 128"] == 1e6
    assert raised[SHRINK] > 1


ROOT = Path(__file__).parents[3]
FIND = (
    f"import sys; sys.path.append({str(ROOT)!r}); from benchmarks.lib import checkout;"
    " checkout.installed() or checkout.find_parts()"
)


def run(script: str, environment: Mapping[str, str] = MappingProxyType({})) -> subprocess.CompletedProcess[str]:
    """Run outside Triton's interpreter, whether or not the project is installed."""
    script = f"{FIND}\n{script}"
    inherited = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=inherited | environment, check=False)


@pytest.mark.long
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


def test_an_unknown_target_is_rejected_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compile", "--target", "cuda:12"])
    with pytest.raises(SystemExit) as exited:
        ahead.main()
    assert exited.value.code == 2
    assert "cuda:12" in capsys.readouterr().err


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
