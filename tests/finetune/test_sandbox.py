"""The sandbox and the environment of training processes: what a faulty or hostile process in them can reach."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loragate.finetune import sandbox as module
from loragate.finetune.config import TrainerPatience
from loragate.finetune.data.formats import Method
from loragate.finetune.run.trainer_environment import trainer_environment
from loragate.finetune.run.trainer_process import training
from loragate.finetune.sandbox import Sandbox, SandboxMode, SandboxUnavailable, available, find_sandbox
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import Finished
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings
from tests.finetune.runs import RECIPES, make_tokens

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s",
    "HF_TOKEN": "s",
    "PGPASSWORD": "s",
    "OPENAI_API_KEY": "s",
    "SSH_AUTH_SOCK": "s",
    "LORAGATE_SECRET_KEY": "s",
    "WANDB_API_KEY": "s",
    "MLFLOW_TRACKING_TOKEN": "s",
    "GITHUB_TOKEN": "s",
}
ORDINARY = {"PATH": "/bin", "LC_ALL": "C", "CUDA_HOME": "/cuda", "LD_LIBRARY_PATH": "/lib"}
PROBE = """
import json, os, socket, sys
def reads(path):
    try:
        return bool(os.listdir(path))
    except OSError:
        return False
def writes(folder):
    try:
        open(os.path.join(folder, "probe"), "w").close()
        return True
    except OSError:
        return False
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2).close()
    connects = True
except OSError:
    connects = False
print(json.dumps({
    "reads": [reads(path) for path in sys.argv[2:]], "writes": [writes(path) for path in sys.argv[2:]],
    "connects": connects, "processes": sum(name.isdigit() for name in os.listdir("/proc")),
}))
"""


@pytest.fixture
def assignment(base: Path, tmp_path: Path) -> Assignment:
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED).folder
    run = tmp_path / "work" / "jobs" / "ftjob-1" / "run"
    return Assignment(RECIPES[Method.SUPERVISED], base, tokens, None, run, None, 64, 4)


@pytest.fixture
def sandbox() -> Sandbox:
    try:
        return available("cpu", ())
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))


def test_credentials_are_not_passed_on(assignment: Assignment) -> None:
    passed = trainer_environment(assignment, ORDINARY | SECRETS)
    assert not passed.keys() & SECRETS.keys()
    assert passed.items() >= ORDINARY.items()


def test_a_tracker_gets_its_own(assignment: Assignment) -> None:
    reporting = replace(assignment, settings=TrainerSettings(report_to=("wandb",)))
    assert trainer_environment(reporting, SECRETS).keys() & SECRETS.keys() == {"WANDB_API_KEY"}


def test_the_command_line() -> None:
    command = Sandbox("/usr/bin/bwrap").command(("true",), [Path(sys.prefix)], [Path("/job")])
    assert (command[0], command[-2:]) == ("/usr/bin/bwrap", ("--", "true"))
    text = " ".join(command)
    assert "--unshare-all --die-with-parent" in text
    assert "--share-net" not in text
    assert "--dev /dev" in text
    assert f"--ro-bind {sys.prefix} {sys.prefix}" in text
    assert text.endswith("--bind /job /job -- true"), "what may be written is mounted last"
    wide = " ".join(Sandbox("bwrap", gpu=True, network=True).command(("true",), (), ()))
    assert "--unshare-all --share-net" in wide
    assert "--dev-bind /dev /dev" in wide


def test_the_targets_of_links_are_readable_too(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "weights").write_text("w")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").symlink_to(tmp_path / "blobs" / "weights")
    command = Sandbox("bwrap").command(("true",), [tmp_path / "model"], ())
    assert {str(tmp_path / "blobs"), str(tmp_path / "model")} <= set(command)


def test_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert find_sandbox(SandboxMode.AUTO, "cpu", ()) is None
    assert find_sandbox(SandboxMode.OFF, "cpu", ()) is None
    with pytest.raises(SandboxUnavailable, match="not installed"):
        find_sandbox(SandboxMode.REQUIRED, "cpu", ())


def test_where_namespaces_are_forbidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(SandboxUnavailable, match="No permissions"):
        available("cpu", ())
    assert find_sandbox(SandboxMode.AUTO, "cpu", ()) is None


def test_a_process_in_it_reaches_its_own_folders_only(sandbox: Sandbox, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("job", "model", "other")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", PROBE, port, *map(str, folders.values())]
        confined = sandbox.command(command, [folders["model"]], [folders["job"]])
        seen = json.loads(subprocess.run(confined, capture_output=True, check=True, timeout=60).stdout)
        free = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert (seen["reads"], seen["writes"], seen["connects"]) == ([True, True, False], [True, False, False], False)
    assert seen["processes"] <= 3
    assert (free["reads"], free["writes"], free["connects"]) == ([True] * 3, [True] * 3, True)


async def test_a_run_in_it(sandbox: Sandbox, assignment: Assignment) -> None:
    async with training(assignment, TrainerPatience(), sandbox) as trainer:
        messages = [message async for message in trainer.messages()]
        assert os.readlink(f"/proc/{trainer.pid}/exe").endswith("bwrap")
    assert isinstance(messages[-1], Finished)
    assert (assignment.folder / "adapter" / "adapter_model.safetensors").exists()
