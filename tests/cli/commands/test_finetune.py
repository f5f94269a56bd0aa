"""`loragate finetune` against the real gateway; the tests write to its store what a worker would write."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from loragate.adapter_store.jobs.job import JobStatus
from loragate.adapter_store.store import Store
from loragate.cli.client.http.api import ConnectionFailed
from loragate.cli.client.job import parse_hyperparameters
from loragate.cli.client.job_progress import BarDisplay, LineDisplay, follow_job
from loragate.cli.client.terminal.sparkline import sparkline
from loragate.cli.errors import CliError
from tests.cli.command_runner import as_new_tenant, run
from tests.cli.running import real_gateway
from tests.gateway.fake_worker import FakeWorker

SECRET_KEY = b"a secret key for the tests"  # of tests/gateway/gateway_setup.py


@dataclass
class World:
    folder: Path
    url: str

    def data(self, lines: int = 12, name: str = "data.jsonl") -> str:
        row = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
        file = self.folder / name
        file.write_text("\n".join([row] * lines))
        return str(file)

    def worker(self, does: Callable[[FakeWorker], Awaitable[None]]) -> None:
        """Run the actions of a worker to their end."""
        asyncio.run(self._work(does))

    async def _work(self, does: Callable[[FakeWorker], Awaitable[None]]) -> None:
        url = f"sqlite+aiosqlite:///{self.folder}/loragate.db"
        store = await Store.open(url, (self.folder / "blobs").as_uri(), SECRET_KEY)
        try:
            async with store.admin() as admin:
                (tenant,) = (await admin.tenants.list()).items
            gateway: Any = SimpleNamespace(services=SimpleNamespace(store=store), tenant_id=tenant.id)
            await does(FakeWorker(gateway))
        finally:
            await store.close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with real_gateway(tmp_path) as url:
        as_new_tenant(url, monkeypatch)
        yield World(tmp_path, url)


def begin(world: World, *more: str) -> str:
    return run("finetune", "create", world.data(), "--no-watch", *more).stdout.strip()


async def half_trained(worker: FakeWorker) -> None:
    await worker.validate()
    await worker.train(8)


async def trained(worker: FakeWorker) -> None:
    await worker.validate()
    job = await worker.train(8)
    await worker.run("checkpoint", job.id, 4, {"train_loss": 0.5}, "ft:m:t:x:12345678:ckpt-step-4")
    await worker.run("log_event", job.id, "Nearly there.")
    await worker.run("succeed", job.id, "ft:m:t:x:12345678", "file-results")


async def found_bad(worker: FakeWorker) -> None:
    job = await worker._claim(JobStatus.VALIDATING)
    await worker.fail(job)


def test_a_job_is_created_followed_and_listed(world: World) -> None:
    settings = ("-s", "n_epochs=2", "-s", "packing=true")
    job_id = begin(world, "--suffix", "x", "--metadata", "team=a", "--seed", "7", *settings)
    assert job_id.startswith("ftjob-")
    world.worker(trained)
    watched = run("finetune", "watch", job_id)
    assert watched.stdout == "ft:m:t:x:12345678\n"
    steps = [line for line in watched.stderr.splitlines() if line.startswith("Step ")]
    assert [step.split(",")[0] for step in steps] == ["Step 1/8", "Step 2/8", "Step 3/8", "Step 4/8"]
    assert "Nearly there." in watched.stderr

    reported = [json.loads(line) for line in run("finetune", "watch", job_id, "--json").stdout.splitlines()]
    assert [each["object"] for each in reported[-2:]] == ["fine_tuning.job.event", "fine_tuning.job"]
    assert reported[-1]["seed"] == 7
    asked = reported[-1]["method"]["supervised"]["hyperparameters"]
    assert (asked["n_epochs"], asked["packing"]) == (2, True)

    assert run("finetune", "list").stdout.split("\t")[:2] == [job_id, "succeeded"]
    assert run("finetune", "list", "--metadata", "team=b").stdout == ""
    (listed,) = json.loads(run("finetune", "list", "--metadata", "team=a", "--json").stdout)
    assert listed["metadata"] == {"team": "a"}
    assert run("finetune", "checkpoints", job_id).stdout.split("\t")[:2] == ["4", "ft:m:t:x:12345678:ckpt-step-4"]


def test_create_follows_the_job_to_its_end(world: World) -> None:
    worker = threading.Thread(target=world.worker, args=(when_there_is_one(trained),))
    worker.start()
    created = run("finetune", "create", world.data(), "--validation-file", world.data(1, "held-out.jsonl"))
    worker.join()
    assert created.stdout == "ft:m:t:x:12345678\n"
    assert "job ftjob-" in created.stderr


def when_there_is_one(does: Callable[[FakeWorker], Awaitable[None]]) -> Callable[[FakeWorker], Awaitable[None]]:
    async def wait(worker: FakeWorker) -> None:
        async with asyncio.timeout(60):
            while True:
                async with worker.store.admin() as admin:
                    if await admin.job_queue.waiting():
                        break
                await asyncio.sleep(0.05)
        await does(worker)

    return wait


def test_a_failed_job_has_its_reason(world: World) -> None:
    job_id = begin(world)
    world.worker(found_bad)
    assert "the job is failed: Line 3: it is no JSON." in run("finetune", "watch", job_id, status=1).stderr


def test_pause_resume_and_cancel(world: World) -> None:
    job_id = begin(world)
    assert run("finetune", "pause", job_id).stdout == f"{job_id}\tpaused\n"
    assert f"loragate finetune resume {job_id}" in run("finetune", "watch", job_id).stderr
    assert run("finetune", "resume", job_id).stdout == f"{job_id}\tvalidating_files\n"
    assert json.loads(run("finetune", "cancel", job_id, "--json").stdout)["status"] == "cancelled"
    assert "the job is cancelled" in run("finetune", "watch", job_id, status=1).stderr
    assert "(request req_" in run("finetune", "resume", job_id, status=1).stderr
    assert "(request req_" in run("finetune", "watch", "ftjob-unknown", status=1).stderr


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the process if a test fails while it waits for it."""
    try:
        yield
    finally:
        process.kill()


def test_ctrl_c_leaves_the_job_running_and_prints_how_to_follow_it(world: World) -> None:
    job_id = begin(world)
    world.worker(half_trained)
    watching = subprocess.Popen(
        [sys.executable, "-m", "loragate.cli.main", "finetune", "watch", job_id], stderr=subprocess.PIPE, text=True
    )
    assert watching.stderr is not None
    with watching, killed_at_the_end(watching):
        while not watching.stderr.readline().startswith("Step 4/8"):
            assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        rest = watching.stderr.read()
        assert watching.wait() == 130
    assert rest == f"the job continues; to follow it again: loragate finetune watch {job_id}\n"
    assert "running" in run("finetune", "list").stdout


def test_a_bad_file_is_rejected_by_line_and_not_sent(world: World) -> None:
    file = Path(world.data())
    file.write_text(file.read_text() + "\nnot json\n{}")
    rejected = run("finetune", "create", str(file), status=1).stderr
    assert "was not uploaded: Line 13: " in rejected
    assert "\n  Line 14: " in rejected
    assert "at least 10" in run("finetune", "create", world.data(3), status=1).stderr
    assert "for the method 'supervised'" in run("finetune", "create", world.data(), "--method", "dpo", status=1).stderr
    assert "no file nowhere.jsonl" in run("finetune", "create", "nowhere.jsonl", status=1).stderr
    file.write_text("not json")
    for held_out in ("nowhere.jsonl", str(file)):
        rejected = run("finetune", "create", world.data(name="good.jsonl"), "--validation-file", held_out, status=1)
        assert "uploading" not in rejected.stderr, "nothing is sent that no job would read"
    assert run("finetune", "list").stdout == ""


def test_the_servers_rejection_is_printed(world: World) -> None:
    unknown = run("finetune", "create", "file-nobodys", "--no-watch", status=1).stderr
    assert "file-nobodys" in unknown
    assert "(request req_" in unknown
    assert "--method" in run("finetune", "create", world.data(), "--method", "guess", status=2).stderr
    assert "NAME=VALUE" in run("finetune", "create", world.data(), "--set", "n_epochs", status=2).stderr
    assert "NAME=TEXT" in run("finetune", "create", world.data(), "--metadata", "team", status=2).stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("n_epochs=900", "--set n_epochs: "),
        ("epochs=3", "--set epochs: supervised has no such hyperparameter; did you mean n_epochs?"),
        (
            "momentum=0.1",
            "--set momentum: supervised has no such hyperparameter; the known ones are n_epochs, batch_size, ",
        ),
        ("n_steps=3", "--set n_steps: it is only allowed with `streaming`"),
        ("early_stopping_patience=3", "needs a --validation-file"),
    ],
)
def test_hyperparameters_are_checked_before_anything_is_sent(given: str, says: str) -> None:
    nowhere = ("--base-url", "http://127.0.0.1:9", "--api-key", "none")
    assert says in run("finetune", "create", "file-1", "--set", given, *nowhere, status=2).stderr


def test_requests_that_take_a_while_say_so(world: World) -> None:
    job_id = begin(world)
    world.worker(half_trained)
    paused = run("finetune", "pause", job_id)
    assert (paused.stdout, "within ten seconds" in paused.stderr) == (f"{job_id}\trunning\n", True)


def test_hyperparameters_are_parsed_as_json_where_possible() -> None:
    given = ["a=1", "b=0.5", "c=true", "d=auto", 'e=["q_proj"]', "f=x=y"]
    assert parse_hyperparameters(given) == {"a": 1, "b": 0.5, "c": True, "d": "auto", "e": ["q_proj"], "f": "x=y"}


@pytest.mark.parametrize(
    ("values", "shown"),
    [([], ""), ([3.0], "▁"), ([8.0, 1.0], "█▁"), ([1.0] * 9, "▁▁▁▁"), ([8, 8, 6, 6, 4, 4, 1, 1], "█▆▄▁")],
)
def test_a_sparkline_averages_values_that_do_not_fit(values: list[float], shown: str) -> None:
    assert sparkline(values, 4) == shown


def test_a_terminal_shows_a_bar_a_curve_and_the_events_above() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    columns = TextColumn("{task.description} {task.completed}/{task.total} {task.fields[curve]} {task.fields[loss]}")
    events = [{"type": "message", "message": "[b]good"}]
    events += [{"type": "metrics", "message": "", "data": {"train_loss": loss}} for loss in (2.0, 1.0)]  # type: ignore[dict-item]
    with Progress(columns, console=console) as progress:
        BarDisplay(progress).show({"status": "validating_files", "progress": {"step": 2, "total_steps": 8}}, events)
    assert "[b]good" in out.getvalue()
    assert "validating files 2/8 █▁ loss 1.0000" in out.getvalue()


class FlakyApi:
    """Does not respond at first."""

    def __init__(self, failures: int) -> None:
        self._failures = failures

    def call(self, method: str, path: str, **_: Any) -> Any:
        self._failures -= 1
        if self._failures >= 0:
            raise ConnectionFailed("no server responds")
        return {"data": [], "has_more": False} if path.endswith("/events") else {"status": "succeeded"}


def test_an_unreachable_server_is_retried_for_a_limited_time() -> None:
    api: Any = FlakyApi(3)
    assert follow_job(api, "ftjob-1", LineDisplay(print), sleep=lambda _: None)["status"] == "succeeded"
    api = FlakyApi(1000)
    with pytest.raises(CliError, match="no server responds"):
        follow_job(api, "ftjob-1", LineDisplay(print), sleep=lambda _: None)


def test_lines_are_sent_to_an_open_file_until_it_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.cli.client.transfer.streaming_file._CHUNK_BYTES", 100)
    file = run("files", "open", "--name", "calls.jsonl").stdout.strip()
    data = world.data(3)
    size = len(Path(data).read_bytes()) + 1
    assert run("files", "append", file, data).stdout == f"{file}\t{size}\n"
    grown = run("files", "append", file, "-", "--json", typed=Path(data).read_text()).stdout
    assert json.loads(grown)["bytes"] == 2 * size
    job_id = run("finetune", "create", file, "--set", "streaming=true", "--no-watch").stdout.strip()
    assert job_id.startswith("ftjob-")
    Path(data).write_text('{"text": "x"}\n')
    assert "Line 1: its format differs" in run("files", "append", file, data, status=1).stderr
    Path(data).write_text(Path(world.data(4)).read_text() + '\n{"text": "x"}\n')
    said = run("files", "append", file, data, status=1).stderr
    assert "Line 1: its format differs" in said
    assert "the first 4 lines were appended" in said
    size = (2 * size + 4 * size // 3) // 2
    assert "there are no lines" in run("files", "append", file, "-", status=1).stderr
    assert "there is no file nowhere" in run("files", "append", file, "nowhere", status=1).stderr
    assert run("files", "close", file).stdout == f"{file}\t{2 * size}\n"
    assert "The file is closed" in run("files", "append", file, world.data(1), status=1).stderr
