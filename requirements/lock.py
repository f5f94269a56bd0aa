"""Write constraints.txt and this folder's lists of files with their hashes, at the pinned versions or newer ones.

`serve.txt` lists what `make serve` installs, `dev.txt` what the tests need beyond it, `cpu.txt` PyTorch's builds for
CPUs, `cuda.txt` what its build for CUDA needs beyond the others, and `proto.txt` and `uv.txt` two tools that have
environments of their own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parent / "constraints.txt"
TOOLS = {"proto": ["grpcio-tools==1.62.3", "setuptools<81"], "uv": ["uv"]}
CUDA = ("cuda-", "nvidia-")
HEADER = "# {}, with the hashes of their files.\n# Written by `make lock`.\n"


def compile_requirements(*arguments: str, requirements: str, environment: dict[str, str] | None = None) -> str:
    """Return uv's list of all packages that some requirements need on any system, with the hashes of their files."""
    command = ["uv", "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes", "--quiet"]
    done = subprocess.run(
        [*command, "--fork-strategy", "fewest", "--no-header", "--no-config", *arguments],
        cwd=HERE.parent,
        input=requirements,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit("uv, which says why above, found no versions; nothing was changed")
    return re.sub(r"^    #   -c .*\n", "", done.stdout, flags=re.MULTILINE)


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


def cpu_builds(torch: str) -> str:
    """Return the lines of PyTorch's builds for CPUs; empty if there are none.

    They are those that the environment's `PIP_FIND_LINKS` and `PIP_EXTRA_INDEX_URL` offer, and those already known.
    """
    version = version_of(torch)
    places = {"PIP_FIND_LINKS": "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL"}
    environment = {ours: os.environ[pips] for pips, ours in places.items() if pips in os.environ}
    offered = compile_requirements(requirements=f"torch=={version}", environment=environment)
    known = (HERE / "cpu.txt").read_text() if (HERE / "cpu.txt").exists() else ""
    lines = re.compile(rf"^torch=={re.escape(version)}\+cpu\b.*\n(?:    --hash.*\n)+", flags=re.MULTILINE)
    hashes = sorted(set(re.findall(r"--hash=\S+", "".join(lines.findall(offered + "\n" + known)))))
    return " \\\n    ".join([f"torch=={version}+cpu", *hashes]) + "\n" if hashes else ""


def with_builds(torch: str, builds: str) -> str:
    """Return the lines of PyTorch with the hashes of more builds."""
    first, *rest = torch.splitlines(keepends=True)
    hashes = sorted({*re.findall(r"--hash=\S+", torch), *re.findall(r"--hash=\S+", builds)})
    return first + " \\\n".join(f"    {each}" for each in hashes) + "\n" + "".join(x for x in rest if "--hash" not in x)


def write(name: str, what: str, blocks: list[str], include: str = "") -> None:
    """Write one file of this folder."""
    (HERE / f"{name}.txt").write_text(HEADER.format(what) + include + "".join(blocks))


def main() -> None:
    """Resolve at the versions in constraints.txt, or at the newest with `--upgrade`, and write all files."""
    pinned = [] if "--upgrade" in sys.argv else ["-c", str(CONSTRAINTS)]
    everything = resolve_extra("dev", *pinned)
    builds = cpu_builds(everything["torch"])
    everything["torch"] = with_builds(everything["torch"], builds)
    comments = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("#")]
    versions = [f"{name}=={version_of(block)}" for name, block in everything.items()]
    with NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(versions))
        constraints.flush()
        serving = resolve_extra("serve", "-c", constraints.name)
    tools = {tool: compile_requirements(requirements="\n".join(TOOLS[tool])) for tool in TOOLS}

    CONSTRAINTS.write_text("\n".join([*comments, *versions]) + "\n")
    cuda = {name for name in everything if name.startswith(CUDA)}
    dev = everything.keys() - serving.keys() - cuda
    write("serve", "The packages of `make serve`", [everything[name] for name in serving if name not in cuda])
    write("dev", "The packages of `make test` and `make check`", [everything[x] for x in sorted(dev)], "-r serve.txt\n")
    write("cpu", "PyTorch's builds for CPUs", [builds])
    write("cuda", "The packages that PyTorch needs for CUDA", [everything[name] for name in sorted(cuda)])
    for tool, text in tools.items():
        write(tool, f"The packages of the tool {tool}", [text])


if __name__ == "__main__":
    main()
