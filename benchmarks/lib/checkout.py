"""Imports of the parts as `loragate.…` from a checkout that is not installed: this one, or an older commit's."""

import importlib.util
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).parents[2]


def installed() -> bool:
    return importlib.util.find_spec("loragate") is not None


def find_parts() -> None:
    """Make `loragate.…` resolve to the parts of this checkout."""
    package = ModuleType("loragate")
    package.__path__ = [str(_ROOT), str(_ROOT / "proto" / "loragate")]
    sys.modules["loragate"] = package


@contextmanager
def parts_of(commit: str) -> Iterator[Path]:
    """Write a commit's files; yield a folder for PYTHONPATH, by which `loragate.…` is that commit's in new processes.

    Its dependencies are the installed ones.
    """
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory(prefix="commit") as name:
        tree, package = Path(name) / "tree", Path(name) / "path" / "loragate"
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(tree, filter="data")
        package.mkdir(parents=True)
        for part in [*tree.iterdir(), tree / "proto" / "loragate" / "v1"]:
            if part.is_dir():
                (package / part.name).symlink_to(part)
        yield package.parent
