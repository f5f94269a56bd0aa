"""Batches: their progress, their results, and their end."""

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
