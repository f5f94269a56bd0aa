"""A sandbox for the training process: bubblewrap gives it namespaces of its own, without a network or other files.

https://github.com/containers/bubblewrap, version 0.4 or newer; it needs user namespaces, which some containers forbid.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

log = logging.getLogger(__name__)

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys", "/etc/ld.so.cache", "/etc/ld.so.conf"),
    *("/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/passwd", "/etc/group"),
)
_NETWORK = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/ssl", "/etc/pki")
_PARTS = ("adapter_store", "engine", "finetune", "peft_format", "prompts", "v1")  # what the training process imports
_SCRATCH = "/tmp"  # noqa: S108 - empty and its own in each sandbox
_GPU = Path("/dev/nvidiactl")
_TRIAL = "import torch, loragate.finetune.training.child; print(torch.cuda.is_available())"
_TRIAL_SECONDS = 120.0


class SandboxMode(StrEnum):
    """AUTO: a sandbox where the system allows one; REQUIRED: no training without one."""

    AUTO = "auto"
    OFF = "off"
    REQUIRED = "required"


class SandboxUnavailable(Exception):
    """The system allows no sandbox. The message says why."""


@dataclass(frozen=True)
class Sandbox:
    """The confinement of training processes. `gpu`: they see the machine's devices; `network`: they keep the network,
    for trackers that need it."""

    bwrap: str
    gpu: bool = False
    network: bool = False

    def command(self, command: Sequence[str], readable: Iterable[Path], writable: Iterable[Path]) -> tuple[str, ...]:
        """Return a command line that runs `command` with these folders, which must exist, and the system's own, which
        it cannot change. Everything else that the process sees is empty and its own."""
        options = ["--unshare-all", *(["--share-net"] if self.network else [])]
        options += ["--die-with-parent", "--cap-drop", "ALL"]
        options += ["--proc", "/proc", *(["--dev-bind", "/dev", "/dev"] if self.gpu else ["--dev", "/dev"])]
        options += ["--tmpfs", _SCRATCH, "--chdir", "/", "--setenv", "HOME", _SCRATCH, "--setenv", "TMPDIR", _SCRATCH]
        for name in (*_SYSTEM, *(_NETWORK if self.network else ())):
            options += ["--ro-bind-try", name, name]
        for path in _ordered((*_python(), *(each for folder in readable for each in _with_targets(folder)))):
            options += ["--ro-bind", path, path]
        for path in _ordered(writable):
            options += ["--bind", path, path]
        return (self.bwrap, *options, "--", *command)

    def try_out(self) -> None:
        """Raise SandboxUnavailable unless a process in the sandbox can train. Takes seconds: it imports torch."""
        found = _run(self.command((sys.executable, "-P", "-c", _TRIAL), (), ()))
        if self.gpu and "True" not in found:
            raise SandboxUnavailable("torch finds no GPU in it")


def find_sandbox(mode: SandboxMode, device: str, reports_to: Sequence[str]) -> Sandbox | None:
    """Return the sandbox for training on `device`, or None. Raise SandboxUnavailable with the mode REQUIRED."""
    if mode is SandboxMode.OFF:
        return None
    try:
        sandbox = available(device, reports_to)
        sandbox.try_out()
    except SandboxUnavailable as error:
        if mode is SandboxMode.REQUIRED:
            raise
        log.warning("training processes run without a sandbox: %s", error)
        return None
    return sandbox


def available(device: str, reports_to: Sequence[str]) -> Sandbox:
    """Return the sandbox if the system allows namespaces. Raise SandboxUnavailable."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap (bwrap) is not installed")
    sandbox = Sandbox(bwrap, gpu=device != "cpu" and _GPU.exists(), network=any(r != "tensorboard" for r in reports_to))
    _run(sandbox.command(("true",), (), ()))
    return sandbox


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"bubblewrap does not run: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SandboxUnavailable(f"bubblewrap failed: {last}")
    return done.stdout


def _python() -> set[Path]:
    """Return the folders of this interpreter, its packages and our code."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    named = (sys.prefix, sys.base_prefix, *sys.path, *libraries)
    folders = {Path(each) for each in named if os.path.isabs(each)}
    for part in _PARTS:
        spec = find_spec(f"loragate.{part}")
        folders |= set(map(Path, spec.submodule_search_locations or ())) if spec else set()
    return {folder for folder in folders if folder.exists()}


def _with_targets(folder: Path) -> set[Path]:
    """Return the folder and those that its files link to, as in the cache of a hub."""
    return {folder, *(path.resolve().parent for path in folder.iterdir() if path.is_symlink())}


def _ordered(paths: Iterable[Path]) -> list[str]:
    """Return the paths with parents first: a later mount hides what an earlier one put below it."""
    return sorted({str(path.absolute()) for path in paths})
