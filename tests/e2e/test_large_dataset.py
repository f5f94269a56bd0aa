"""A gigabyte of examples is uploaded, validated, tokenized and read in memory that does not grow with its size."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI
from running_server import RunningServer

GIGABYTE = 1 << 30
WAIT_SECONDS = 3600
SENTENCE = "what is the capital of France? "  # words that the tokenizer has
WORDS = {"short": 128, "long": (1 << 20) // len(SENTENCE)}  # sentences of a line: 4 KB, and 1 MB
MOST_MB = {"gateway": 100.0, "worker": 512.0, "trainer": 64.0}  # more than with a file of 4 MB

pytestmark = [pytest.mark.long, pytest.mark.timeout(3 * WAIT_SECONDS)]


@pytest.fixture
def training_server(tiny: Any, tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(
        tmp_path / "data", "--model", str(tiny.base),
        LORAGATE_FINETUNE__ENABLED="true", LORAGATE_FINETUNE__THREADS="1", LORAGATE_FINETUNE__NICE="1",
    )  # fmt: skip
    yield running
    running.stop()


def make(path: Path, size: int) -> Path:
    """Write half of it in short lines, half in long ones."""
    with path.open("wb") as file:
        for kind, share in (("short", size // 2), ("long", size)):
            line = json.dumps({"text": SENTENCE * WORDS[kind]}).encode() + b"\n"
            while file.tell() + len(line) <= share:
                file.write(line)
    return path


def peak_mb(pid: int) -> float:
    """The peak of resident memory so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def private_mb(pid: int) -> float:
    """Private memory: pages of mapped files are shared, and are evicted when memory is needed."""
    memory = psutil.Process(pid).memory_info()
    return float(memory.rss - memory.shared) / (1 << 20)


def until(condition: Callable[[], bool]) -> None:
    """Polled rarely: the server has other work."""
    waited = threading.Event()
    for _ in range(WAIT_SECONDS):
        if condition():
            return
        waited.wait(1.0)
    raise AssertionError(f"did not come true in {WAIT_SECONDS} s")


class Jobs:
    """Of one tenant on the server."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.client = OpenAI(base_url=f"{server.base_url}/v1", api_key=server.add_tenant("acme"), timeout=600)

    def memory(self, path: Path) -> dict[str, float]:
        """Of the whole machine while this file is being trained on."""
        client = self.client
        sent = client.uploads.upload_file_chunked(file=path, mime_type="application/jsonl", purpose="fine-tune")
        assert sent.file is not None
        numbers = {"n_epochs": 50, "batch_size": 8, "max_length": 64}
        job = client.fine_tuning.jobs.create(
            model=client.models.list().data[0].id, training_file=sent.file.id,
            method={"type": "supervised", "supervised": {"hyperparameters": numbers}},  # type: ignore[typeddict-item]
        )  # fmt: skip

        def learns() -> bool:
            found = client.fine_tuning.jobs.retrieve(job.id)
            assert found.error is None or not found.error.message, found.error
            events = client.fine_tuning.jobs.list_events(job.id, limit=20).data
            steps = [event.data["step"] for event in events if event.type == "metrics"]  # type: ignore[index]
            return max(steps, default=0) >= 20

        until(learns)
        pids = self.server.runtime["pids"]
        (trainer,) = self.server.trainers
        found = {"gateway": peak_mb(pids["gateway"][0]), "worker": peak_mb(pids["finetune"])}
        found["trainer"] = private_mb(trainer)
        client.fine_tuning.jobs.cancel(job.id)
        until(lambda: client.fine_tuning.jobs.retrieve(job.id).finished_at is not None)
        return found


def test_a_gigabyte_takes_no_more_memory_than_four_megabytes(training_server: RunningServer, tmp_path: Path) -> None:
    jobs = Jobs(training_server)
    small = jobs.memory(make(tmp_path / "small.jsonl", 4 << 20))
    large = jobs.memory(make(tmp_path / "large.jsonl", GIGABYTE))
    grown = {name: large[name] - small[name] for name in small}
    print(f"MB with 4 MB {small}, more with 1 GB {grown}")
    assert {name for name, most in MOST_MB.items() if grown[name] > most} == set(), grown
