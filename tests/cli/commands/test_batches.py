"""`loragate batches` against the real gateway, whose engine repeats prompts."""

import json
from pathlib import Path

import pytest

from loragate.cli.client.batch import BatchBar, follow_batch
from loragate.cli.client.http.api import ConnectionFailed
from loragate.cli.errors import BAD_SETTING
from tests.cli.command_runner import run
from tests.gateway.batches.batch_files import chat_line, jsonl

pytestmark = pytest.mark.usefixtures("tenant")


@pytest.fixture
def requests(tmp_path: Path) -> str:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(jsonl([chat_line("one"), chat_line("two"), chat_line("hot", temperature=9)]))
    return str(file)


def test_create_watch_and_download(requests: str, tmp_path: Path) -> None:
    created = run("batches", "create", requests, "--metadata", "team=a")
    batch = created.stdout.strip()
    assert "completed: 3 of 3 lines, 1 failed" in created.stderr
    watched = json.loads(run("batches", "watch", batch, "--json").stdout)
    assert (watched["status"], watched["metadata"]) == ("completed", {"team": "a"})
    folder = tmp_path / "results"
    downloaded = run("batches", "download", batch, "--to", str(folder))
    names = [Path(line).name for line in downloaded.stdout.splitlines()]
    assert names == [f"{batch}_output.jsonl", f"{batch}_errors.jsonl"]
    output, errors = ([json.loads(line) for line in (folder / name).read_text().splitlines()] for name in names)
    assert [line["custom_id"] for line in output] == ["one", "two"]
    assert [line["response"]["status_code"] for line in errors] == [400]
    again = run("batches", "download", batch, "--to", str(folder), status=BAD_SETTING)
    assert "exists already" in again.stderr
    assert batch in run("batches", "list").stdout


def test_problems_are_reported_by_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("{\n")
    failed = run("batches", "create", str(file), status=1)
    assert "the batch is failed\n  line 1: The line is not valid JSON." in failed.stderr
    assert "there is no file" in run("batches", "create", "missing.jsonl", status=1).stderr
    ended = run("batches", "cancel", failed.stdout.strip(), status=1)
    assert "can no longer be cancelled" in ended.stderr


def test_a_server_that_does_not_respond_is_retried() -> None:
    counts = {"total": 2, "completed": 1, "failed": 0}
    batch = {"id": "b", "status": "in_progress", "request_counts": counts, "waits_for": "Tomorrow."}
    answers = [batch, ConnectionFailed("gone"), batch, batch | {"status": "expired", "waits_for": None}]

    class Flaky:
        def call(self, *_: str) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    lines: list[str] = []
    last = follow_batch(Flaky(), "b", BatchBar(lines.append).show, sleep=lambda _: None)  # type: ignore[arg-type]
    assert last["status"] == "expired"
    assert lines == ["in progress: 1 of 2 lines; Tomorrow.", "expired: 1 of 2 lines"]
