"""Codex and Claude Code, configured as docs/clients.md shows, do a task with a model of random weights: they run the
command that it calls for, send the output back, and print its answer."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer
from snippets import ROOT, blocks
from tiny_models import make_model

from tests.clients import forced_turns, recordings
from tests.clients.environments import Environments, cache_folder
from tests.clients.recorder import Recorder, recording

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

DEMO = ROOT / "demo/data/loragate-demo"
MODEL, TASK = "big", "Say hello."
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A model with the demo's tokenizer and template, and the positions that the agents' prompts need."""
    folder = tmp_path_factory.mktemp("model") / MODEL
    random = make_model(
        "llama", vocab_size=2048, hidden_size=64, num_hidden_layers=2, head_dim=16, max_position_embeddings=1 << 16,
        eos_token_id=4, pad_token_id=0, bos_token_id=None,
    )  # fmt: skip
    random.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder)
    running = RunningServer(tmp_path_factory.mktemp("data"), "--model", str(folder))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def key(server: RunningServer) -> str:
    return server.add_tenant("acme")


@dataclass(frozen=True)
class Agent:
    """How an agent is started: from its folder of packages, with the configuration of docs/clients.md."""

    project: str
    program: str
    options: tuple[str, ...]
    change: Callable[[str, Any], Any]


CODEX = Agent(
    "codex",
    "node_modules/@openai/codex/bin/codex.js",
    ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
    forced_turns.of_codex,
)
CLAUDE_CODE = Agent(
    "claude-code",
    "node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs",
    ("--print", "--allowedTools=Bash"),
    forced_turns.of_claude_code,
)


def shown(beginning: str, language: str, recorder: Recorder, key: str, model: str) -> str:
    """Return a block of docs/clients.md with the address, key and model of a test."""
    (text,) = (
        block.text for block in blocks(language) if block.page == "docs/clients.md" and block.text.startswith(beginning)
    )
    return text.replace("http://127.0.0.1:8000", recorder.base_url).replace("my-model", model).replace("lg-…", key)


def configuration(agent: Agent, home: Path, recorder: Recorder, key: str, model: str) -> dict[str, str]:
    """Write what the agent reads below `home`; return the variables that it needs."""
    if agent is CODEX:
        text = shown("# ~/.codex/config.toml", "toml", recorder, key, model)
        (home / ".codex").mkdir()
        (home / ".codex/config.toml").write_text(text)
        return {"LORAGATE_API_KEY": key}
    exports = shown("export ANTHROPIC_BASE_URL", "bash", recorder, key, model)
    return dict(re.findall(r"^export (\w+)=(\S+)", exports, re.MULTILINE))


def run(
    agent: Agent, environments: Environments, recorder: Recorder, home: Path, key: str, *more: str, model: str = MODEL
) -> Done:
    """Run the agent in `project` below its home, with `more` options."""
    (home / "project").mkdir(parents=True)
    variables = configuration(agent, home, recorder, key, model)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)} | variables
    program = environments.npm(agent.project) / agent.program
    command = [environments.node, program, *agent.options, *more, TASK]
    return subprocess.run(
        command, cwd=home / "project", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def environments(request: pytest.FixtureRequest) -> Environments:
    return Environments(cache_folder(request.config))


both = pytest.mark.parametrize("agent", [CODEX, CLAUDE_CODE], ids=lambda agent: agent.project)


@both
def test_a_task(agent: Agent, server: RunningServer, environments: Environments, key: str, tmp_path: Path) -> None:
    with recording(server.base_url, agent.change) as recorder:
        done = run(agent, environments, recorder, tmp_path, key)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == forced_turns.ANSWER
    assert (tmp_path / "project/said.txt").read_text() == f"{forced_turns.OUTPUT}\n"
    asked, answered = (each for each in recorder.sent if each.path in ("/v1/responses", "/v1/messages"))
    assert (asked.status, answered.status) == (200, 200)
    assert forced_turns.OUTPUT in json.dumps(answered.body["input" if agent is CODEX else "messages"][-1])
    if recordings.RECORDING:
        recordings.write(agent.project, recorder.sent, {key: recordings.KEY, str(tmp_path): "/home/user"})


@both
def test_a_wrong_key(agent: Agent, server: RunningServer, environments: Environments, tmp_path: Path) -> None:
    with recording(server.base_url) as recorder:
        done = run(agent, environments, recorder, tmp_path, "lg-invalid")
    assert done.returncode != 0
    assert "This API key is not valid." in done.stdout + done.stderr


@both
def test_an_unknown_model(
    agent: Agent, server: RunningServer, environments: Environments, key: str, tmp_path: Path
) -> None:
    with recording(server.base_url) as recorder:
        done = run(agent, environments, recorder, tmp_path, key, model="unknownModel")
    assert done.returncode != 0
    assert "unknownModel" in done.stdout + done.stderr
    assert 404 in [each.status for each in recorder.sent]


def test_codex_shows_which_line_it_needs(
    server: RunningServer, environments: Environments, key: str, tmp_path: Path
) -> None:
    with recording(server.base_url) as recorder:
        done = run(CODEX, environments, recorder, tmp_path, key, "--config", 'web_search="live"')
    assert done.returncode != 0
    assert r"in Codex set `web_search = \"disabled\"` in config.toml" in done.stderr
