"""Batches: their creation, their progress, their results, and their end."""

import json
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.gateway.batches.batch_files import CHAT, chat_line, jsonl
from tests.panel.world import World


def _batch(world: World, *seeds: int) -> str:
    with world.api() as api:
        content = jsonl(chat_line(f"line-{seed}", seed=seed) for seed in seeds)
        file = api.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)}).json()["id"]
        wanted = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        return str(api.post("/v1/batches", json=wanted).json()["id"])


def test_a_batch_runs_and_is_cancelled(signed_in: Callable[..., Page], world: World) -> None:
    world.gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    world.gateway.hold_after(0)
    batch = _batch(world, 1, 2, 3, 7)
    page = signed_in(path="/batches")
    expect(page.get_by_text("3 of 4 lines")).to_be_visible()
    expect(page.get_by_text("in progress", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Cancel {batch}").click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Results of {batch}").click()
    assert download.value.suggested_filename == f"{batch}_output.jsonl"
    with open(download.value.path()) as file:
        assert {json.loads(line)["custom_id"] for line in file} == {"line-1", "line-2", "line-3"}


def test_a_batch_is_created_from_a_file(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/batches")
    page.get_by_role("button", name="New batch").click()
    dialog = page.get_by_role("dialog", name="New batch")
    create = dialog.get_by_role("button", name="Create batch")
    create.click()
    expect(dialog.get_by_text("Choose a file of requests.")).to_be_visible()

    bad = world.folder / "bad.jsonl"
    bad.write_bytes(jsonl([chat_line("same"), chat_line("same"), chat_line("get") | {"method": "GET"}]))
    dialog.get_by_label("Requests").set_input_files(bad)
    alert = dialog.get_by_role("alert").filter(has_text="Line")
    expect(alert).to_contain_text("Line 2: an earlier line has the same custom_id.")
    expect(alert).to_contain_text("Line 3: its method is not POST.")

    good = world.folder / "asked.jsonl"
    inputs = [{"custom_id": f"<b>{n}</b>", "method": "POST", "url": "/v1/embeddings"} for n in range(2)]
    good.write_bytes(jsonl([line | {"body": {"model": "tiny/base-model", "input": "Hi"}} for line in inputs]))
    with page.expect_response("**/transfer/files") as sent:
        dialog.get_by_label("Requests").set_input_files(good)
    assert sent.value.json()["purpose"] == "batch"
    expect(dialog.get_by_text("2 requests, /v1/embeddings")).to_be_visible()
    expect(dialog.get_by_text("<b>0</b>")).to_be_visible()

    dialog.get_by_label("Completion window").fill("soon")
    dialog.get_by_label("Metadata").fill("team")
    create.click()
    expect(dialog.get_by_text("Each line must be NAME=TEXT")).to_be_visible()
    dialog.get_by_label("Metadata").fill("team = care")
    create.click()
    expect(dialog.get_by_text("it must be a number of hours or days")).to_be_visible()
    dialog.get_by_label("Completion window").fill("7d")
    create.click()
    expect(dialog).to_have_count(0)
    with world.api() as api:
        newest = api.get("/v1/batches").json()["data"][0]
    assert (newest["endpoint"], newest["completion_window"]) == ("/v1/embeddings", "7d")
    assert (newest["input_file_id"], newest["metadata"]) == (sent.value.json()["id"], {"team": "care"})
    expect(page.get_by_text(newest["id"])).to_be_visible()


def test_the_operator_sees_all_batches_and_cancels_one(signed_in: Callable[..., Page], world: World) -> None:
    world.gateway.engine.pauses = lambda submit: submit.sampling.seed == 7
    world.gateway.hold_after(0)
    batch = _batch(world, 1, 7)
    page = signed_in(world.admin_key, path="/batches")
    row = page.get_by_role("row").filter(has_text=batch)
    expect(row).to_contain_text("acme")
    expect(row).to_contain_text("1 of 2 lines")
    expect(page.get_by_role("button", name="New batch")).to_have_count(0)
    page.get_by_role("button", name=f"Cancel {batch}").click()
    expect(row).to_contain_text("cancelled")
    expect(row.get_by_role("link")).to_have_count(0)
    page.get_by_label("State").click()
    page.get_by_role("option", name="Expired").click()
    expect(page.get_by_text("No batch is in this state.")).to_be_visible()
