"""The GPU benchmarks run to their end without a GPU, on a machine with only a checkout of the project."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "triton", "transformers", "peft", "grpcio", "protobuf", "numpy", "safetensors", "tokenizers")
TESTING = ("pytest", "pytest-timeout", "hypothesis")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of such a machine: the required libraries and their dependencies."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in _with_dependencies(NEEDED + TESTING):
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            link = folder / part
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(part))))
    return {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def module() -> Any:
    """Return the module of partial results."""
    spec = importlib.util.spec_from_file_location("partial_results", ROOT / "benchmarks" / "lib" / "partial_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_cases_of_a_name_are_measured(module: Any, tmp_path: Path) -> None:
    measured: list[str] = []
    results = module.PartialResults(tmp_path / "part.json", dict, lambda: None, "bfloat16")
    for name in ("lora float32", "lora bfloat16"):
        results.record(name, lambda name=name: measured.append(name))
        results.extend("several", name, lambda name=name: measured.append(f"several {name}"))
    assert measured == ["lora bfloat16", "several lora bfloat16"]
    assert results.failures == {}


def test_failures_are_recorded_and_other_results_are_kept(
    module: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, freed = tmp_path / "gpu_time.json", []
    results = module.PartialResults(path, lambda: {"benchmark": "gpu_time"}, lambda: freed.append(1))

    def stage() -> None:
        assert results.record("first", lambda: 1) == 1
        assert json.loads(path.read_text())["figures"] == {"first": 1}, "only the end of a stage writes"
        assert results.record("second", lambda: 1 // 0) is None
        for case in (0, 2):
            results.extend("several", f"case {case}", lambda case=case: 4 // case)
        raise RuntimeError("late")

    results.run(stage)
    report = json.loads(path.read_text())
    assert report["benchmark"] == "gpu_time"
    assert report["figures"] == {"first": 1, "several": [2]}
    assert list(report["failures"]) == ["second", "several, case 0", "the stage itself"]
    assert "late" in report["failures"]["the stage itself"]
    assert len(freed) == 5
    assert "ZeroDivisionError" in capsys.readouterr().err


def _with_dependencies(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the distributions and, recursively, their dependencies on this platform."""
    seen, left = {"pydantic"}, list(names)  # of a newer typer, which transformers needs only for its command
    while left:
        name = left.pop().lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            required = [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:  # for another platform
            continue
        yield name
        left += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]


def run(environment: dict[str, str], *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run the command without this environment's own libraries, the project included."""
    command = [sys.executable, "-S", "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, timeout=seconds, capture_output=True, text=True)


@pytest.mark.long
def test_all_stages_are_there_without_the_project_s_libraries(bare: dict[str, str], tmp_path: Path) -> None:
    probe = run(bare, "--help", seconds=300)
    assert probe.returncode == 0, probe.stderr
    assert "--interpret" in probe.stdout
    missing = "import importlib.util as u; print([n for n in ('loragate', 'pydantic', 'fastapi') if u.find_spec(n)])"
    command = [sys.executable, "-S", "-c", missing]
    found = subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]", "libraries that should be missing are installed"


@pytest.mark.long
def test_the_kernels_tests_run_there(bare: dict[str, str], tmp_path: Path) -> None:
    folder = ROOT / "tests" / "kernels" / "gpu"
    files = [str(folder / name) for name in ("test_gated.py", "test_compile.py")]
    command = [sys.executable, "-S", "-m", "pytest", *files, "-q", "-k", "no_rows or unknown_target"]
    done = subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(2700)
def test_all_stages_in_the_interpreter(bare: dict[str, str], tmp_path: Path) -> None:
    arguments = ("--out", str(tmp_path), "--work", str(tmp_path), "--interpret", "--tiny")
    done = run(bare, *arguments, seconds=2400)
    assert done.returncode == 0, done.stderr
    for stage in ("warm", "check", "time", "answers", "graphs", "profile", "serve", "options", "cold"):
        report = json.loads((tmp_path / f"gpu_{stage}.json").read_text())
        assert report["figures"]
        assert report["failures"] == {}
