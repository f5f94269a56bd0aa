"""Third-party clients at their newest versions do with the demo what their users do with OpenAI or Anthropic.

Each client runs in an environment of its own (environments.py), as a program of programs/ that reports what it got.
docs/clients.md lists them.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer

from tests.clients import recordings
from tests.clients.environments import Environments, cache_folder
from tests.clients.recorder import recording

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
ANSWER, SECOND, FORECAST, PLACE = (
    "Arr, it be Paris, matey!",
    "Arr, it be Rome, matey!",
    "It is sunny, 21 °C.",
    {"city": "Paris"},
)
ANSWERS = {"answer": ANSWER, "streamed": ANSWER, "second_turn": SECOND}
USUAL = {**ANSWERS, "tool": FORECAST, "structured": PLACE}
OF_OPENAI = {"wrong_key": "AuthenticationError", "unknown_model": "NotFoundError"}
OF_THE_AI_SDK = {"wrong_key": "APICallError 401", "unknown_model": "APICallError 404"}
NOT_STORED = "items are not stored here: send store=false, or the item itself."
NOT_A_MODEL = "The model 'unknownModel' does not exist or you do not have access to it."

PYTHON: dict[str, dict[str, Any]] = {
    "openai": USUAL | OF_OPENAI | {
        "responses": ANSWER, "responses_streamed": ANSWER, "responses_tool": FORECAST, "responses_structured": "Paris",
        "completion": "text_completion", "models": ["french", "loragate-demo", "pirate"], "embeddings": 2,
        "previous_response": "BadRequestError",
    },
    "anthropic": USUAL | OF_OPENAI | {"counted": True},
    "openai_agents": USUAL | OF_OPENAI | {"chats": USUAL | OF_OPENAI},
    "langchain": USUAL | {
        "wrong_key": "OpenAIAuthenticationError", "unknown_model": "OpenAIModelNotFoundError", "embeddings": 2,
        "responses": USUAL | {"wrong_key": "OpenAIAuthenticationError", "unknown_model": "OpenAIModelNotFoundError"},
        "messages": USUAL | {
            "wrong_key": "AnthropicAuthenticationError", "unknown_model": "AnthropicModelNotFoundError",
        },
    },
    "llama_index": USUAL | OF_OPENAI,
    "instructor": OF_OPENAI | {
        "structured": PLACE, "tools": PLACE, "strict_tools": PLACE, "streamed": "Paris", "second_turn": True,
    },
    "dspy": {
        "answer": ANSWER, "follows_the_schema": True, "called": '{"city": "Helsinki"}', "second_turn": SECOND,
        "litellm": ANSWER, "wrong_key": "LMAuthError", "unknown_model": "LMUnsupportedModelError",
    },
    "litellm": USUAL | OF_OPENAI | {
        "responses": ANSWER, "embeddings": 2,
        "bridge": {
            "openai": {"answer": ANSWER, "streamed": True, "tool": FORECAST},
            "anthropic": {"answer": ANSWER, "streamed": True, "tool": FORECAST},
        },
    },
    "llm": USUAL | {
        "wrong_key": "Error: Error code: 401 - This API key is not valid.",
        "unknown_model": f"Error: Error code: 404 - {NOT_A_MODEL}",
    },
    "huggingface_hub": USUAL | {"wrong_key": "HfHubHTTPError 401", "unknown_model": "HfHubHTTPError 404"},
    "mlflow": OF_OPENAI | {"answer": ANSWER, "streamed": ANSWER, "evaluated": 1.0, "traced": True},
    "locust": {
        "clean": dict.fromkeys(("answer", "openai", "streamed", "wrong_key", "unknown_model"), True),
    },
}  # fmt: skip

NPM: dict[tuple[str, str], dict[str, Any]] = {
    ("sdks", "openai"): USUAL | OF_OPENAI | {
        "responses_streamed": ANSWER, "responses_tool": FORECAST, "responses_structured": PLACE, "embeddings": 2,
    },
    ("sdks", "anthropic"): USUAL | OF_OPENAI | {"counted": True},
    ("sdks", "ai-sdk"): USUAL | OF_THE_AI_SDK | {
        "compatible": USUAL | OF_THE_AI_SDK, "anthropic": USUAL | OF_THE_AI_SDK,
        "without_the_option": f"Invalid 'input.1.type': {NOT_STORED}",
    },
    ("promptfoo", "promptfoo"): {
        "passed": dict.fromkeys(("openai:chat:pirate", "openai:responses:pirate", "anthropic:messages:pirate"), True),
        "completion": "none", "wrong_key": "401", "unknown_model": "404",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("demo"), "--demo")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def environments(request: pytest.FixtureRequest) -> Environments:
    return Environments(cache_folder(request.config))


def key_of(server: RunningServer, tenant: str) -> str:
    tenants = json.loads((server.data_dir / "demo.json").read_text())["tenants"]
    return next(str(each["api_key"]) for each in tenants if each["name"] == tenant)


def run(server: RunningServer, client: str, folder: Path, *command: str | Path) -> str:
    """Run a client as the demo's tenant globex, and return what it prints. Keep its requests if that is asked for."""
    key = key_of(server, "globex")
    with recording(server.base_url) as recorder:
        home = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.environ["PATH"]}
        environment = home | {"LORAGATE_BASE_URL": recorder.base_url, "LORAGATE_API_KEY": key}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
    assert recorder.sent
    if recordings.RECORDING:
        names = {key: recordings.KEY, "lg-invalid": recordings.WRONG_KEY, str(folder): "/home/user"}
        recordings.write(client, recorder.sent, names)
    return done.stdout


@pytest.mark.parametrize("client", PYTHON)
def test_a_client_for_python(server: RunningServer, environments: Environments, client: str, tmp_path: Path) -> None:
    program = HERE / f"programs/with_{client}.py"
    said = run(server, client, tmp_path, environments.python(client), "-W", "ignore", program)
    assert json.loads(said.splitlines()[-1]) == PYTHON[client]


@pytest.mark.parametrize(("project", "client"), NPM)
def test_a_client_for_node(
    server: RunningServer, environments: Environments, project: str, client: str, tmp_path: Path
) -> None:
    program = environments.npm(project) / f"{client}.mjs"
    said = run(server, f"{client}-node", tmp_path, environments.node, program)
    assert json.loads(said.splitlines()[-1]) == NPM[project, client]


def test_guidellm(server: RunningServer, environments: Environments, tmp_path: Path) -> None:
    """It reads the usage of each chunk of a stream."""
    program = environments.python("guidellm").with_name("guidellm")
    tokenizer = HERE.parents[1] / "demo/data/loragate-demo"
    wrapper = tmp_path / "run.sh"
    options = (
        '--backend "kind=openai_http,target=$LORAGATE_BASE_URL,api_key=$LORAGATE_API_KEY,model=pirate"',
        f"--tokenizer kind=huggingface_auto,model={tokenizer}",
        "--data kind=synthetic_text,prompt_tokens=20,output_tokens=8",
        "--profile kind=synchronous",
        "--constraint kind=max_requests,count=4",
        f"--output kind=json,path={tmp_path}/results.json",
    )
    wrapper.write_text(f"HF_HUB_OFFLINE=1 exec {program} run --disable-console {' '.join(options)}")
    run(server, "guidellm", tmp_path, "sh", wrapper)
    (benchmark,) = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (4, 0)
