"""Every page, wide and light, narrow and dark: no serious finding of axe, and nothing wider than the screen.

With LORAGATE_PANEL_PICTURES=<folder> screenshots of each are saved, at both widths in both themes, for review.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from running_server import until
from thinned import thinned

from loragate.v1 import engine_pb2 as pb
from tests.gateway.engine_stats import full_stats
from tests.panel.conftest import Cookie
from tests.panel.world import WAIT_SECONDS, World

PICTURES = os.environ.get("LORAGATE_PANEL_PICTURES")
LOOKS = [(1440, "light"), (360, "dark"), *([(360, "light"), (1440, "dark")] if PICTURES else [])]
OF_TENANTS = {
    "overview": "/",
    "adapters": "/adapters",
    "adapter": "/adapters/support-triage",
    "playground": "/playground?model=haiku",
    "classify": "/classify?model=topics",
    "fine-tuning": "/fine-tuning",
    "job": "/fine-tuning/{job}",
    "batches": "/batches",
    "responses": "/responses",
    "training": "/training",
    "usage": "/usage",
    "keys": "/keys",
}
OF_OPERATORS = {
    "server": "/",
    "all-adapters": "/adapters",
    "all-jobs": "/fine-tuning",
    "any-job": "/fine-tuning/{job}",
    "all-batches": "/batches",
    "all-training": "/training",
    "all-usage": "/usage",
    "tenants": "/tenants",
    "tenant": "/tenants/{tenant}",
    "engine": "/engine",
    "audit": "/audit",
}
SHEETS = {
    "sheet-upload": ("/adapters", "Upload an adapter"),
    "sheet-import": ("/adapters", "Import an adapter from a hub or bucket"),
    "sheet-limits": ("/adapters/haiku", "Limits of haiku"),
    "sheet-job": ("/fine-tuning", "New job"),
    "sheet-batch": ("/batches", "New batch"),
    "sheet-key": ("/keys", "New key"),
}


@pytest.fixture(scope="module")
def furnished(world: World) -> World:
    """A gateway with content for every page."""
    words = "Sorts tickets, answers in one line."
    digests = [
        world.upload("support-triage", seed=1, tags="team:care,triage", description=words)["digest"],
        world.upload("support-triage", seed=2, alias="canary", notes="Twice the data", parent_version="1")["digest"],
        world.upload("haiku", seed=3, tags="team:verse", description="Answers in verse.")["digest"],
    ]
    world.upload("topics", seed=6, labels=("billing", "technical"))
    world.upload("contract-summary", seed=4, tags="legal", description="Contracts, clause by clause.")
    targets = [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]
    with world.api() as api:
        assert api.put("/v1/adapters/support-triage/aliases/default", json={"targets": targets}).is_success
        for number in range(24):
            model = ("support-triage", "haiku", "support-triage@canary")[number % 3]
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 24}
            assert api.post("/v1/chat/completions", json=body).is_success
        until(lambda: bool(api.get("/v1/usage").json()["data"]), WAIT_SECONDS)
    world.job = _job(world)
    _batch(world)
    world.gateway.training_run(world.tenant_id)
    stats = _busy_engine(*(pb.AdapterRef(tenant_id=world.tenant_id, digest=d) for d in digests))
    stats.tenants.add(tenant_id=world.other_tenant_id, running=3, waiting=14)
    stats.tenants.add(tenant_id=world.tenant_id, running=9, waiting=3)
    world.gateway.engine.stats = stats
    return world


def _job(world: World) -> str:
    """Create a job in training, with curves and checkpoints."""
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]})
    with world.api() as api:
        body = {"file": ("verse.jsonl", "\n".join([line] * 20).encode())}
        file = api.post("/v1/files", data={"purpose": "fine-tune"}, files=body).json()["id"]
        wanted = {"model": "tiny/base-model", "training_file": file, "suffix": "poet"}
        job: str = api.post("/v1/fine_tuning/jobs", json=wanted).json()["id"]
    world.gateway.half_trained()
    return job


def _batch(world: World) -> None:
    """Create a batch with a line that fails, and run it."""
    chat = {"model": "tiny/base-model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    lines = [
        {"custom_id": f"line-{n}", "method": "POST", "url": "/v1/chat/completions", "body": chat | {"temperature": n}}
        for n in (0, 1, 9)
    ]
    with world.api() as api:
        body = {"file": ("requests.jsonl", "\n".join(map(json.dumps, lines)).encode())}
        file = api.post("/v1/files", data={"purpose": "batch"}, files=body).json()["id"]
        wanted = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = api.post("/v1/batches", json=wanted).json()["id"]
        until(lambda: bool(api.get(f"/v1/batches/{batch}").json()["status"] == "completed"), WAIT_SECONDS)


def _busy_engine(*residents: pb.AdapterRef) -> pb.StatsResponse:
    """Return the statistics of an engine with eight slots, some of them used."""
    stats = full_stats(*residents)
    stats.running, stats.waiting, stats.waiting_for_adapter = 12, 17, 1
    stats.slots_used, stats.slots_total = len(residents), 8
    stats.kv_blocks_used, stats.kv_blocks_total = 310, 1024
    stats.recent_steps.p50, stats.recent_steps.p99 = 0.0184, 0.0412
    for room, used, total in (
        (stats.adapter_device, 180, 256),
        (stats.adapter_host, 410, 1024),
        (stats.adapter_disk, 1900, 2000),
    ):
        room.used_bytes, room.total_bytes = used << 20, total << 20
    return stats


def _serious(page: Page) -> list[str]:
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def _settled(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".waiting")).to_have_count(0)


@pytest.mark.parametrize(
    ("role", "width", "theme"),
    thinned(
        [(role, *look) for role in ("tenant", "operator", "visitor") for look in LOOKS],
        fast={("visitor", 360, "dark")},
    ),
)
def test_pages_are_accessible(
    browser: Browser,
    furnished: World,
    cookies: Callable[[str], Cookie],
    role: str,
    width: int,
    theme: str,
) -> None:
    world = furnished
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)  # type: ignore[arg-type]
    pages = {"tenant": OF_TENANTS, "operator": OF_OPERATORS, "visitor": {"sign-in": "/sign-in"}}[role]
    if role != "visitor":
        context.add_cookies([cookies(world.key if role == "tenant" else world.admin_key)])
    page = context.new_page()
    wrong: dict[str, list[str]] = {}
    for name, path in pages.items():
        page.goto(world.panel.url + path.format(tenant=world.tenant_id, job=world.job))
        _settled(page)
        if found := _serious(page):
            wrong[name] = found
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong[name] = [*found, "it is wider than the screen"]
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png", full_page=True)
    if PICTURES and role == "tenant":
        for name, (path, opened_by) in SHEETS.items():
            page.goto(world.panel.url + path)
            _settled(page)
            page.get_by_role("button", name=opened_by).first.click()
            expect(page.get_by_role("dialog").get_by_role("heading")).to_be_visible()
            _settled(page)
            page.wait_for_function("document.getAnimations().every((each) => each.playState !== 'running')")
            if found := _serious(page):
                wrong[name] = found
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{theme}.png")
        page.goto(f"{world.panel.url}/playground?model=support-triage")
        _two_answer(page)
        page.screenshot(path=Path(PICTURES) / f"compare-{width}-{theme}.png")
    context.close()
    assert not wrong


def _two_answer(page: Page) -> None:
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="haiku", exact=True).click()
    page.get_by_label("Your message").fill("My parcel is three days late. Where is it?")
    page.get_by_role("button", name="Send", exact=True).click()
    for side in ("First", "Second"):
        expect(page.get_by_role("log", name=f"{side} answer: conversation")).to_contain_text("speaking.")
    expect(page.get_by_text("First token after")).to_have_count(2)


def test_the_menu_and_a_dialog_can_be_used_with_the_keyboard(signed_in: Callable[..., Page], furnished: World) -> None:
    page = signed_in(path="/adapters")
    _settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    button = page.get_by_role("button", name="Upload an adapter")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(
        page.get_by_label("Drop", exact=False).or_(page.get_by_role("button", name="Choose files")).first
    ).to_be_visible()
    assert not _serious(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
