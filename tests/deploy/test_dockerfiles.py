"""The Dockerfiles: what is in the images, who runs in them, and that the build's context has all that they copy."""

import fnmatch
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from loragate.cli.settings.model import Settings
from loragate.cli.settings.names import environment_names

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "deploy" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILER = re.compile(r"^(gcc|g\+\+|clang|cpp|build-essential|make|.*-dev)$")
FINAL = {"Dockerfile": ("serve", "finetune"), "Dockerfile.cuda": ("cuda",)}


def stages(file: str) -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage with a name, those of the stage that it starts from included."""
    text = re.sub(r"^\s*#.*\n", "", (FOLDER / file).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            current = found[name] = [*found.get(base, [("FROM", base)])]
        else:
            current.append((instruction, rest.strip()))
    return found


def packages(stage: list[tuple[str, str]]) -> set[str]:
    """Return what a stage installs with apt."""
    commands = [command for kind, rest in stage if kind == "RUN" for command in rest.split("&&")]
    installs = [command.split() for command in commands if "apt-get install" in command]
    assert all("--no-install-recommends" in words for words in installs)
    return {word for words in installs for word in words[2:] if not word.startswith("-")}


IMAGES = [(file, name) for file, names in FINAL.items() for name in names]


@pytest.mark.parametrize(("file", "name"), IMAGES)
def test_an_image_runs_a_server_as_an_ordinary_user(file: str, name: str) -> None:
    stage = stages(file)[name]
    last = dict(stage)
    assert stage[0] == ("FROM", "debian:bookworm-slim")
    assert last["USER"] == "10001:10001", "a number, so that Kubernetes can see that it is not root"
    assert json.loads(last["ENTRYPOINT"]) == ["tini", "--", "loragate"]
    assert json.loads(last["CMD"])[0] in ("serve", "finetune-worker")
    assert json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[0] == "healthcheck"
    assert last["VOLUME"] == "/data"


@pytest.mark.parametrize("file", FINAL)
def test_only_the_image_for_gpus_has_a_compiler(file: str) -> None:
    found = {word for stage in stages(file).values() for word in packages(stage) if COMPILER.match(word)}
    assert found == ({"gcc", "libc6-dev", "python3-dev"} if file == "Dockerfile.cuda" else set())


@pytest.mark.parametrize("file", FINAL)
def test_apts_lists_stay_out_of_the_layers(file: str) -> None:
    runs = [rest for stage in stages(file).values() for kind, rest in stage if kind == "RUN" and "apt-get" in rest]
    assert runs
    assert all("rm -rf /var/lib/apt/lists/* /var/cache/apt/*" in rest for rest in runs)


@pytest.mark.parametrize("file", FINAL)
def test_extras_and_settings_exist(file: str) -> None:
    text = (FOLDER / file).read_text()
    extras = {word for line in re.findall(r"install-packages (?:cpu|cuda) ([\w ]+)", text) for word in line.split()}
    assert extras
    assert extras <= set(PROJECT["project"]["optional-dependencies"])
    assert set(re.findall(r"LORAGATE_\w+", text)) <= set(environment_names(Settings))


@pytest.mark.parametrize("file", FINAL)
def test_build_arguments_default_to_nothing(file: str) -> None:
    arguments = [
        word for stage in stages(file).values() for kind, rest in stage if kind == "ARG" for word in rest.split()
    ]
    assert arguments
    assert all(re.fullmatch(r'PIP_\w+=""', word) for word in arguments)


def test_the_context_has_all_parts_of_the_wheel_and_nothing_else() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    packages = PROJECT["tool"]["setuptools"]["package-dir"].values()
    folders = {folder if folder.startswith("deploy/") else folder.split("/")[0] for folder in packages}
    copied = {"deploy/docker/healthcheck.py", "deploy/docker/install-packages", "requirements"}
    read = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert kept == folders | copied | read
    assert all((ROOT / name).exists() for name in kept)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ignored = [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]
    shipped = tuple(f"{folder}/" for folder in folders)
    lost = [name for name in listed.splitlines() if name.startswith(shipped) and _is_ignored(name, ignored)]
    assert not lost


def _is_ignored(name: str, rules: list[str]) -> bool:
    return any(fnmatch.fnmatch(part, rule) for part in name.split("/") for rule in rules)


@pytest.mark.parametrize("script", ["install-packages", "make-env"])
def test_scripts_are_plain_shell(script: str) -> None:
    assert (FOLDER / script).read_text().startswith("#!/bin/sh\n")
    assert (FOLDER / script).stat().st_mode & 0o111
    subprocess.run(["sh", "-n", FOLDER / script], check=True)


def test_packages_are_installed_by_their_hashes_only() -> None:
    text = (FOLDER / "install-packages").read_text().replace("\\\n", " ")
    installs = [line for line in text.splitlines() if re.search(r"\bpip install\b", line)]
    assert len(installs) == 2
    assert all("--require-hashes" in line and "--no-deps" in line for line in installs)


@pytest.mark.long
def test_hadolint_accepts_the_files(tmp_path: Path) -> None:
    """It also rejects what its rules forbid."""
    subprocess.run(["make", "-C", str(ROOT), "build/hadolint/bin/hadolint"], check=True)
    hadolint = ROOT / "build" / "hadolint" / "bin" / "hadolint"
    found = subprocess.run([hadolint, *(FOLDER / file for file in FINAL)], capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("", 0), found.stderr
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM debian\nRUN cd / && sudo true\n")
    assert subprocess.run([hadolint, wrong], capture_output=True, check=False).returncode == 1
