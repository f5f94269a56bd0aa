"""Fine-tuning on a real server through the official client: from a file to a usable adapter, with
any process killed.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from chromium import launched_chromium
from openai import OpenAI
from openai.types.fine_tuning import FineTuningJob
from playwright.sync_api import Page, expect
from readme_example import printed_by
from running_server import RunningServer, ok, until

pytestmark = pytest.mark.long  # tests/finetune/worker and tests/panel/pages run the parts of this in the fast set

WAIT_SECONDS = 240


@pytest.fixture(scope="module")
def training_server(tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:  # type: ignore[no-untyped-def]
    running = RunningServer(
        tmp_path_factory.mktemp("data"), "--model", str(tiny.base),
        LORAGATE_FINETUNE__ENABLED="true", LORAGATE_FINETUNE__THREADS="1", LORAGATE_FINETUNE__NICE="1",
        LORAGATE_PANEL__ENABLED="true",
    )  # fmt: skip
    yield running
    running.stop()


@pytest.fixture(scope="module")
def acme(training_server: RunningServer) -> Iterator[OpenAI]:
    key = training_server.add_tenant("acme")
    with OpenAI(base_url=f"{training_server.base_url}/v1", api_key=key) as client:
        yield client


def chats(count: int = 16) -> bytes:
    lines = [
        {"messages": [{"role": "user", "content": f"fox {n}"}, {"role": "assistant", "content": "jumps over"}]}
        for n in range(count)
    ]
    return "\n".join(map(json.dumps, lines)).encode()


def test_a_job_survives_the_death_of_each_process(training_server: RunningServer, acme: OpenAI) -> None:
    base = acme.models.list().data[0].id
    file = acme.files.create(file=("data.jsonl", chats()), purpose="fine-tune")
    numbers = {"n_epochs": 20, "batch_size": 4, "max_length": 128}
    job = acme.fine_tuning.jobs.create(
        model=base, training_file=file.id, suffix="poet", seed=7,
        method={"type": "supervised", "supervised": {"hyperparameters": numbers}},  # type: ignore[typeddict-item]
    )  # fmt: skip

    def said() -> list[str]:
        return [event.message for event in acme.fine_tuning.jobs.list_events(job.id, limit=100).data]

    until(lambda: any(message.startswith("Step 10/") for message in said()), WAIT_SECONDS)
    worker = training_server.runtime["pids"]["finetune"]
    os.kill(worker, signal.SIGKILL)
    until(lambda: training_server.runtime["pids"]["finetune"] not in (None, worker), WAIT_SECONDS)
    until(lambda: bool(training_server.trainers), WAIT_SECONDS)
    os.kill(training_server.trainers[0], signal.SIGKILL)
    until(lambda: acme.fine_tuning.jobs.retrieve(job.id).finished_at is not None, WAIT_SECONDS)

    done = acme.fine_tuning.jobs.retrieve(job.id)
    assert (done.status, done.error) == ("succeeded", None), said()
    every = acme.fine_tuning.jobs.list_events(job.id)
    assert "The training process died (signal 9)." in [event.message for event in every]
    checkpoint = acme.fine_tuning.jobs.checkpoints.list(job.id).data[0].fine_tuned_model_checkpoint
    for model in (done.fine_tuned_model, checkpoint):
        answer = acme.completions.create(model=str(model), prompt="fox", max_tokens=4)
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 0
    (results,) = done.result_files
    rows = acme.files.content(results).text.splitlines()
    assert [int(row.split(",")[0]) for row in rows[1:]] == list(range(1, 81)), "no step is missing"
    (steps,) = re.findall(
        r"^loragate_finetune_steps_total (\S+)$",
        httpx.get(f"{training_server.base_url}/metrics", timeout=60).text,
        re.MULTILINE,
    )
    assert float(steps) >= 80
    until(lambda: not list((Path(training_server.data_dir) / "finetune" / "jobs").iterdir()))


@pytest.fixture
def panel(training_server: RunningServer) -> Iterator[Page]:
    """Sign in to the panel as a new tenant."""
    key = training_server.add_tenant("initech")
    until(
        lambda: ok(httpx.get(f"{training_server.base_url}/readyz", timeout=60))["parts"].get("panel") == "ok",
        WAIT_SECONDS,
    )
    with launched_chromium() as browser:
        page = browser.new_page(base_url=training_server.runtime["panel_url"])
        page.set_default_timeout(WAIT_SECONDS * 1000)
        page.goto("/fine-tuning")
        page.get_by_label("Your key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        yield page


def test_from_a_file_to_a_chat_in_the_panel(panel: Page) -> None:
    expect.set_options(timeout=WAIT_SECONDS * 1000)
    panel.get_by_role("button", name="New job").click()
    data = {"name": "data.jsonl", "mimeType": "application/jsonl", "buffer": chats()}
    with panel.expect_response("**/transfer/files"):
        panel.get_by_label("Training file").set_input_files(data)  # type: ignore[arg-type]
    expect(panel.get_by_role("dialog").get_by_text("16 examples, chat")).to_be_visible()
    panel.get_by_label("Name").fill("poet")
    panel.get_by_text("Hyperparameters", exact=True).click()
    for label, number in (("Epochs", "2"), ("Batch size", "4"), ("Rank", "4")):
        panel.get_by_label(label).fill(number)
    expect(panel.get_by_role("progressbar")).to_have_count(0)
    panel.get_by_role("button", name="Create job", exact=True).click()
    panel.wait_for_url("**/fine-tuning/ftjob-*")
    expect(panel.get_by_text("succeeded", exact=True)).to_be_visible()
    expect(panel.get_by_text("8 of 8 steps")).to_be_visible()
    for picture in ("Loss by step", "Learning rate by step, in thousandths"):
        expect(panel.get_by_role("img", name=picture)).to_be_visible()
    job = panel.url
    asks = [panel.get_by_role("region", name="Checkpoints").get_by_role("link", name="Open in the playground").first]
    asks.append(panel.get_by_role("link", name="Open in the playground", exact=True).first)
    for ask in asks:
        panel.goto(job)
        ask.click()
        panel.get_by_label("Max tokens").fill("8")
        panel.get_by_label("Your message").fill("fox 3")
        panel.get_by_role("button", name="Send", exact=True).click()
        expect(panel.get_by_text("First token after").or_(panel.get_by_text("The answer is empty"))).to_be_visible()
        expect(panel.get_by_role("log", name="First answer: conversation")).to_contain_text("poet")
        expect(panel.get_by_role("alert")).to_have_count(0)


def test_a_panel_that_hangs_costs_the_api_nothing(training_server: RunningServer, acme: OpenAI) -> None:
    hung = training_server.runtime["pids"]["panel"]
    os.kill(hung, signal.SIGSTOP)
    try:
        base = acme.models.list().data[0].id
        for _ in range(3):
            answer = acme.completions.create(model=base, prompt="fox", max_tokens=4, timeout=WAIT_SECONDS)
            assert answer.usage is not None
            assert answer.usage.completion_tokens > 0
        assert httpx.get(f"{training_server.base_url}/readyz", timeout=WAIT_SECONDS).status_code == 200
    finally:
        os.kill(hung, signal.SIGCONT)


def streaming_job(client: OpenAI, file_id: str) -> FineTuningJob:
    numbers = {"streaming": True, "n_epochs": 1, "batch_size": 4, "max_length": 128}
    return client.fine_tuning.jobs.create(
        model=client.models.list().data[0].id, training_file=file_id, suffix="live", seed=7,
        method={"type": "supervised", "supervised": {"hyperparameters": numbers}},  # type: ignore[typeddict-item]
    )  # fmt: skip


def waits(client: OpenAI, job: FineTuningJob, steps: int) -> bool:
    """Return whether the job has reported that it waits for lines after that step."""
    events = client.fine_tuning.jobs.list_events(job.id, limit=100).data
    return any(f"{steps} steps are done so far" in event.message for event in events)


def test_a_job_trains_on_appended_lines_and_can_be_paused_while_it_waits(
    training_server: RunningServer, acme: OpenAI
) -> None:
    lines = chats(18).splitlines(keepends=True)

    def append(more: list[bytes]) -> None:
        form: Any = {"headers": {"Content-Type": "multipart/form-data"}}
        acme.post(f"/files/{file.id}/append", files={"data": b"".join(more)}, options=form, cast_to=object)

    file = acme.files.create(file=("live.jsonl", b"".join(lines[:9])), purpose="fine-tune", extra_body={"open": "true"})
    job = streaming_job(acme, file.id)
    until(lambda: waits(acme, job, 2), WAIT_SECONDS)
    acme.fine_tuning.jobs.pause(job.id)
    until(lambda: acme.fine_tuning.jobs.retrieve(job.id).status == "paused", WAIT_SECONDS)
    until(lambda: not training_server.trainers, WAIT_SECONDS)
    append(lines[9:13])
    acme.fine_tuning.jobs.resume(job.id)
    until(lambda: waits(acme, job, 3), WAIT_SECONDS)
    append(lines[13:])
    acme.post(f"/files/{file.id}/close", cast_to=object)
    until(lambda: acme.fine_tuning.jobs.retrieve(job.id).finished_at is not None, WAIT_SECONDS)
    done = acme.fine_tuning.jobs.retrieve(job.id)
    assert (done.status, done.error) == ("succeeded", None)
    answer = acme.completions.create(model=str(done.fine_tuned_model), prompt="fox", max_tokens=4)
    assert answer.usage is not None
    (results,) = done.result_files
    rows = acme.files.content(results).text.splitlines()
    assert [int(row.split(",")[0]) for row in rows[1:]] == [1, 2, 3, 4, 5]


def test_a_job_that_waits_for_lines_is_cancelled(training_server: RunningServer, acme: OpenAI) -> None:
    file = acme.files.create(file=("none.jsonl", b""), purpose="fine-tune", extra_body={"open": "true"})
    job = streaming_job(acme, file.id)
    until(lambda: waits(acme, job, 0), WAIT_SECONDS)
    acme.fine_tuning.jobs.cancel(job.id)
    until(lambda: acme.fine_tuning.jobs.retrieve(job.id).status == "cancelled", WAIT_SECONDS)
    until(lambda: not training_server.trainers, WAIT_SECONDS)


def test_the_readmes_example_runs_unchanged(training_server: RunningServer, acme: OpenAI) -> None:
    """It uses another model than the demo's, which learns the README's facts in a test that takes minutes."""
    base = acme.models.list().data[0].id
    printed_by("fine_tuning.jobs.create", training_server.base_url, base, ACME_KEY=acme.api_key)
    (job,) = [job for job in acme.fine_tuning.jobs.list() if job.fine_tuned_model and "sailor" in job.fine_tuned_model]
    assert job.status == "succeeded"


def test_the_server_reports_its_worker_and_stops_it_in_time(training_server: RunningServer) -> None:
    """This is the last test of the file: it ends the server."""
    until(lambda: ok(httpx.get(f"{training_server.base_url}/readyz", timeout=60))["parts"]["finetune"] == "ok")
    worker = training_server.runtime["pids"]["finetune"]
    assert os.getpriority(os.PRIO_PROCESS, worker) == 1
    assert training_server.stop() == 0
    assert not psutil.pid_exists(worker)
