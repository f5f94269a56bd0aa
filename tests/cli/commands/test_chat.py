import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loragate.cli.client.terminal.conversation import chat_text
from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.data_dir.runtime_file import Pids, Runtime
from loragate.cli.main import app
from tests.cli.running import ChatServer, chat_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    with chat_server() as chat:
        monkeypatch.setenv("LORAGATE_BASE_URL", chat.url)
        monkeypatch.setenv("LORAGATE_API_KEY", "lg-key")
        yield chat


def chat(*arguments: str, status: int = 0, typed: str = "") -> Result:
    result = CliRunner().invoke(app, ["chat", *arguments], input=typed)
    assert result.exit_code == status, result.output
    return result


def test_one_question(server: ChatServer) -> None:
    asked = chat("hello", "--model", "bot:3", "--system", "Be brief.", "--max-tokens", "5", "--temperature", "0")
    assert asked.stdout == "You said hello.\n"
    assert server.bodies == [
        {
            "model": "bot:3",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
            "stream": True,
            "max_tokens": 5,
            "temperature": 0.0,
        }
    ]
    assert server.keys == ["lg-key"]


def test_the_base_model_responds_by_default(server: ChatServer) -> None:
    chat("hello")
    assert server.bodies[0]["model"] == "base"


def test_a_conversation_includes_both_sides(server: ChatServer) -> None:
    assert chat(typed="one\n\n  two \n").stdout == "You said one.\nYou said two.\n"
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["one", "You said one.", "two"]
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "assistant", "user"]


def test_an_error_status_is_printed_as_a_sentence(server: ChatServer) -> None:
    rejected = chat("hello", "--model", "missing", status=1)
    assert rejected.stderr == "error: No such model. (request req_42)\n"
    assert rejected.stdout == ""


def test_an_error_event_ends_the_line_and_the_command(server: ChatServer) -> None:
    server.error = {"message": "The engine went away.", "code": "engine_unavailable"}
    failed = chat("hello", status=1)
    assert failed.stdout == "You said hello.\n"
    assert failed.stderr == "error: The engine went away.\n"


def test_a_stream_without_its_end_is_an_error(server: ChatServer) -> None:
    server.break_off = True
    assert "ended before it was complete" in chat("hello", status=1).stderr


def test_openais_key_goes_to_openais_server_only(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LORAGATE_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-key")
    assert "no API key" in chat("hello", status=1).stderr
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1")
    assert "no API key" in chat("hello", status=1).stderr
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1/")
    chat("hello")
    assert server.keys == ["sk-key"]


def test_after_a_demo_start_no_options_are_needed(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LORAGATE_BASE_URL")
    monkeypatch.delenv("LORAGATE_API_KEY")
    data_dir = Path(".loragate")
    data_dir.mkdir()
    runtime_file.write(data_dir, Runtime(server.url, Pids(1, (), None)))
    tenants = [
        {"name": "one", "api_key": "lg-one", "adapters": ["french"]},
        {"name": "two", "api_key": "lg-two", "adapters": ["pirate"]},
    ]
    (data_dir / "demo.json").write_text(json.dumps({"admin_key": "k" * 24, "tenants": tenants}))
    with lock_data_dir(data_dir):
        chat("hello")
        chat("hello", "--model", "pirate")
        chat("hello", "--model", "pirate@default")
        chat("hello", "--model", "elsewhere", "--api-key", "lg-given")
    assert server.keys == ["lg-one", "lg-two", "lg-two", "lg-given"]


def test_reasoning_is_apart_from_the_reply() -> None:
    thought: list[str] = []
    deltas = [{"reasoning": "Let me "}, {"reasoning": "think."}, {"content": "Paris"}]
    lines = [f"data: {json.dumps({'choices': [{'delta': delta}]})}" for delta in deltas]
    assert "".join(chat_text([*lines, "data: [DONE]"], thought.append)) == "Paris"
    assert thought == ["Let me ", "think."]
