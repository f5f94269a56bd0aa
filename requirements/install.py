"""Install the packages of an extra, and loragate, into the environment whose Python runs this script.

`install.py serve` or `install.py dev`. The files are those of the lists in this folder, checked by their hashes. uv
installs them; pip installs uv, and does uv's work where the index has no uv. `REQUIRE_HASHES=no` installs the versions
of constraints.txt instead, without a check of their files.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pip_settings import names_a_place, read_pip_settings, uv_variables

HERE = Path(__file__).parent
ROOT = HERE.parent
LOCKED = ("--require-hashes", "--no-deps")
_NVIDIA = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/usr/lib/wsl/lib/nvidia-smi")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


class InstallError(Exception):
    """An installer failed; the message is its output."""


@dataclass(frozen=True)
class Machine:
    """What decides which files fit: the markers of the lists, and whether there is an NVIDIA GPU."""

    system: str  # as `sys_platform`
    processor: str  # as `platform_machine`
    python: str  # as `python_version`
    has_gpu: bool

    @property
    def marker(self) -> str:
        """The condition under which torch-cpu.txt lists a build for this machine."""
        return (
            f"python_version == '{self.python}' and sys_platform == '{self.system}' "
            f"and platform_machine == '{self.processor}'"
        )


def this_machine() -> Machine:
    """Return the machine that this script runs on."""
    has_gpu = any(map(os.path.exists, _NVIDIA)) or shutil.which("nvidia-smi") is not None
    return Machine(sys.platform, platform.machine(), "{}.{}".format(*sys.version_info), has_gpu)


@dataclass(frozen=True)
class Installer:
    """`uv pip install` or `pip install`, with the variables that it needs."""

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    backends: bool = False  # whether it takes `--torch-backend`

    def install(self, *arguments: str, total: int = 0) -> None:
        """Install what the arguments name and show how much of `total` bytes has come. Raise InstallError."""
        process = subprocess.Popen(
            [*self.command, *arguments],
            cwd=ROOT,
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output: list[str] = []
        downloads = Downloads()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line)
                if name := downloads.read(line):
                    show_progress(downloads.received, total, name)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            sys.exit(130)
        finally:
            clear_progress()
        if process.wait():
            raise InstallError("".join(output))


class Downloads:
    """Counts what an installer reports as received.

    uv reports `Downloading NAME (SIZE)` and later ` Downloaded NAME`, pip `Downloading FILE (SIZE)` alone.
    """

    def __init__(self) -> None:
        self.received = 0
        self._announced: dict[str, int] = {}

    def read(self, line: str) -> str | None:
        """Count a line of output; return the name of the package that it reports as received."""
        if found := re.match(r"\s*Downloading (\S+) \(([\d.]+) ?(\w+)\)", line):
            size = int(float(found[2]) * _UNITS.get(found[3], 0))
            if not found[1].endswith((".whl", ".gz")):
                self._announced[found[1]] = size
                return None
            self.received += size
            return found[1].partition("-")[0]
        found = re.match(r"\s*Downloaded (\S+)", line)
        if found is None or found[1] not in self._announced:
            return None
        self.received += self._announced.pop(found[1])
        return found[1]


def show_progress(received: int, total: int, name: str) -> None:
    """Rewrite the line of progress, if a person looks."""
    if sys.stdout.isatty():
        print(f"\r\033[K    {megabytes(received)} of {megabytes(max(received, total))}: {name}", end="", flush=True)


def clear_progress() -> None:
    """Remove the line of progress."""
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)


def megabytes(size: int) -> str:
    """Return a size as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def report(words: str) -> None:
    """Print the line of a stage."""
    print(f"==> {words}", flush=True)


def remark(words: str) -> None:
    """Print a line about the current stage."""
    print(f"    {words}", flush=True)


def download_size(machine: Machine, *lists: str) -> int:
    """Return the bytes of the files that the lists name for a machine; 0 if they are not known."""
    known = json.loads((HERE / "downloads.json").read_text())
    sizes = known.get(f"{machine.system} {machine.processor}", {}).get(machine.python, {})
    return sum(sizes.get(name, 0) for name in lists)


def included(extra: str) -> tuple[str, ...]:
    """Return the lists that an extra's packages are in, but for PyTorch's."""
    return ("serve", "dev") if extra == "dev" else ("serve",)


def choose_torch(machine: Machine) -> str:
    """Return the list of PyTorch's build for a machine: the one for CPUs, or the default index's.

    Outside Linux the default index's build is one for CPUs.
    """
    if machine.has_gpu or machine.system != "linux":
        return "torch"
    return "torch-cpu" if machine.marker in (HERE / "torch-cpu.txt").read_text() else "torch"


def torch_backend(machine: Machine, torch: str, installer: Installer) -> list[str]:
    """Return uv's option for the index of PyTorch's builds; none where the environment says where packages are."""
    if not installer.backends or names_a_place({**os.environ, **installer.variables}) or machine.system != "linux":
        return []
    if torch == "any":  # without hashes
        return ["--torch-backend=auto" if machine.has_gpu else "--torch-backend=cpu"]
    return ["--torch-backend=cpu"] if torch == "torch-cpu" else []


def find_installer(machine: Machine) -> Installer:
    """Return uv, installed into this environment, or pip if the index has no uv."""
    pip = Installer("pip", (sys.executable, "-m", "pip", "install", "--disable-pip-version-check"), {})
    uv = Path(sys.executable).with_name("uv")
    [version] = re.findall(r"^uv==(\S+)", (HERE / "uv.txt").read_text(), re.MULTILINE)
    if not (uv.exists() and version in subprocess.run([uv, "--version"], capture_output=True, text=True).stdout):
        report(f"installer: uv {version}, {megabytes(download_size(machine, 'uv'))}")
        try:
            pip.install(*LOCKED, "-r", "requirements/uv.txt")
        except InstallError:
            remark("not available: pip installs the packages, which takes longer")
            return pip
    command = (str(uv), "pip", "install", "--python", sys.executable)
    return Installer("uv", command, uv_variables(read_pip_settings(), os.environ), backends=True)


def install_locked(installer: Installer, machine: Machine, extra: str) -> None:
    """Install the listed files of an extra. Raise InstallError."""
    torch = choose_torch(machine)
    if torch == "torch" and machine.system == "linux" and not machine.has_gpu:
        where = f"Python {machine.python} on {machine.processor}"
        remark(f"requirements/torch-cpu.txt lists no build of PyTorch for {where}: the one")
        remark("with CUDA follows. REQUIRE_HASHES=no installs one for CPUs without a check of its hash.")
    try:
        install_lists(installer, machine, torch, extra)
    except InstallError as error:
        if torch == "torch" or "torch" not in str(error):
            raise
        remark("no index offers the listed build of PyTorch for CPUs: the one with CUDA follows")
        install_lists(installer, machine, "torch", extra)


def install_lists(installer: Installer, machine: Machine, torch: str, extra: str) -> None:
    """Install the listed files of an extra with one of PyTorch's builds. Raise InstallError."""
    # PyTorch first: pip downloads in this order, and a build that no index has fails at once.
    size = download_size(machine, torch, *included(extra))
    build = "for CPUs" if torch == "torch-cpu" or machine.system != "linux" else "with CUDA"
    sizes = f"{megabytes(size)} to download, less what a cache has" if size else "of unknown size"
    report(f"packages: PyTorch {build} and the others, {sizes}")
    began = time.monotonic()
    ours, others = ("-r", f"requirements/{torch}.txt"), ("-r", f"requirements/{extra}.txt")
    if backend := torch_backend(machine, torch, installer):
        # Apart, so that the backend's index is asked for PyTorch alone.
        installer.install(*LOCKED, *backend, *ours, total=size)
        installer.install(*LOCKED, *others, total=size)
    else:
        installer.install(*LOCKED, *ours, *others, total=size)
    remark(f"installed in {time.monotonic() - began:.0f} s")


def install_unlocked(installer: Installer, machine: Machine, extra: str) -> None:
    """Install the versions of constraints.txt, with any files. Raise InstallError."""
    report("packages: the versions of constraints.txt, without a check of their hashes")
    if backend := torch_backend(machine, "any", installer):
        installer.install("-c", "constraints.txt", *backend, "torch")
    installer.install("-c", "constraints.txt", "setuptools")
    installer.install("-c", "constraints.txt", "--no-build-isolation", "-e", f".[{extra}]")


def main() -> None:
    """Install the extra that the command line names."""
    extra = sys.argv[1]
    machine = this_machine()
    try:
        installer = find_installer(machine)
        if os.environ.get("REQUIRE_HASHES") == "no":
            install_unlocked(installer, machine, extra)
        else:
            install_locked(installer, machine, extra)
            installer.install("--no-deps", "--no-build-isolation", "-e", ".")
    except InstallError as error:
        sys.exit(f"{error}\nthe installation failed, for the reason above")


if __name__ == "__main__":
    main()
