"""The release workflow: what can be checked of it without running it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / ".github/workflows/release.yml").read_text()
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
COMMANDS = [
    shlex.split(line)
    for job in JOBS.values()
    for step in job["steps"]
    for line in str(step.get("run", "")).splitlines()
    if line
]


def test_every_action_is_pinned_by_its_commit_and_says_the_version() -> None:
    used = re.findall(r"uses: (.+)$", TEXT, re.MULTILINE)
    assert len(used) > 8
    assert [each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
    pins = {each.split("@")[0]: set() for each in used}
    for each in used:
        pins[each.split("@")[0]].add(each)
    assert all(len(versions) == 1 for versions in pins.values()), "one version of each action"


def test_only_the_jobs_that_sign_and_publish_get_an_identity() -> None:
    assert yaml.safe_load(TEXT)["permissions"] == {}
    assert {name for name, job in JOBS.items() if "id-token" in job["permissions"]} == {"build", "publish"}
    assert JOBS["publish"]["needs"] == ["build", "try"]
    assert JOBS["publish"]["environment"] == "pypi"
    assert JOBS["publish"]["if"] == "github.ref_type == 'tag'"


def test_its_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {words[words.index("make") + 1] for words in COMMANDS if "make" in words}
    assert made
    assert made <= targets
    files = {word for words in COMMANDS for word in words if word.startswith(("requirements/", "constraints"))}
    assert len(files) == 2
    assert all((ROOT / file).exists() for file in files)


def test_the_demo_takes_the_option_that_the_workflow_gives_it() -> None:
    [words] = [each for each in COMMANDS if each[0].endswith("/loragate")]
    help_text = subprocess.run(
        [sys.executable, "-m", "loragate.cli.main", words[1], "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(option in help_text for option in words[2:])


@pytest.mark.parametrize(("tag", "status"), [("v0.1.0", 0), ("v0.1.1", 1), ("v0.1", 1)])
def test_a_tag_of_another_version_stops_the_build(tag: str, status: int) -> None:
    [step] = [each for each in JOBS["build"]["steps"] if each.get("name") == "The tag is the version"]
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    tag = tag.replace("0.1.0", version[1])
    done = subprocess.run(["bash", "-c", step["run"]], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"})
    assert done.returncode == status
