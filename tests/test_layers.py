"""Which part may import which, and which libraries each needs."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = (
    "adapter_store",
    "cli",
    "demo",
    "engine",
    "finetune",
    "gateway",
    "kernels",
    "panel",
    "peft_format",
    "prompts",
    "trainer",
)
MAX_FILES = 20
GATEWAY_LIBRARIES = ("pydantic", "fastapi", "starlette", "sqlalchemy", "redis", "alembic", "fsspec.asyn", "uvicorn")

IMPORT_ALL_WITHOUT = """
import gc, importlib, pkgutil, sys

gc.disable()  # imports create no garbage
part, *blocked = sys.argv[1:]

for each in blocked:
    sys.modules[each] = None  # cannot be imported, and `find_spec` does not find it
package = importlib.import_module(part)
for module in pkgutil.walk_packages(package.__path__, part + "."):
    importlib.import_module(module.name)
    print(module.name)
"""


def import_all(part: str, without: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Import every module of a part, in a process where these libraries cannot be found."""
    command = [sys.executable, "-W", "ignore", "-c", IMPORT_ALL_WITHOUT, f"loragate.{part}", *without]
    return subprocess.run(command, capture_output=True, text=True)


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    modules = [file for part in PARTS for file in (ROOT / part).rglob("*.py") if file.name != "__init__.py"]
    counts = Counter(module.parent for module in modules)
    assert counts[ROOT / "gateway" / "http"] > 5
    assert not {folder: count for folder, count in counts.items() if count > MAX_FILES}


@pytest.mark.long  # `make check` does the same
def test_the_layers_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run([str(lint), "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert " 0 broken" in checked.stdout


@pytest.mark.parametrize(
    ("part", "without", "has"),
    [
        ("peft_format", ("torch", "transformers", "peft", "grpc", "google", *GATEWAY_LIBRARIES), "read"),
        ("kernels", ("transformers", "peft", "grpc", "google", *GATEWAY_LIBRARIES), "segmented_lora"),
        (
            "engine",
            (
                "peft",
                "bitsandbytes",
                "compressed_tensors",
                "triton",  # PyTorch's builds for CPUs and for macOS do not bring it
                "loragate.adapter_store",
                "loragate.gateway",
                *GATEWAY_LIBRARIES,
            ),
            "server.server",
        ),
        ("adapter_store", ("torch", "transformers", "peft", "fastapi"), "store"),
        ("prompts", ("torch", "transformers", "peft", "fastapi", "sqlalchemy"), "chat_template"),
        ("gateway", ("torch", "transformers", "peft"), "app"),
    ],
)
def test_a_part_imports_with_only_what_it_may_use(part: str, without: tuple[str, ...], has: str) -> None:
    imported = import_all(part, without)
    assert imported.returncode == 0, imported.stderr
    assert f"loragate.{part}.{has}" in imported.stdout.splitlines()


def test_a_missing_library_would_be_noticed() -> None:
    assert "pydantic" in import_all("gateway", ("pydantic",)).stderr
