"""Thousands of adapters: the server pages, searches and filters, and the page holds one page of them."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Page, expect

from tests.panel.world import World

ADAPTERS = 3000
POLL_SECONDS = 15
_TABLES = ("adapters", "adapter_versions", "adapter_aliases", "alias_targets", "adapter_tags")


def _multiply(world: World, name: str) -> None:
    """Copy this adapter under many more names, in its store."""
    with sqlite3.connect(world.folder / "loragate.db", timeout=60) as database:
        database.row_factory = sqlite3.Row
        (adapter,) = database.execute("SELECT * FROM adapters WHERE name = ?", (name,)).fetchall()
        for table in _TABLES:
            key = "id" if table == "adapters" else "adapter_id"
            for row in database.execute(f"SELECT * FROM {table} WHERE {key} = ?", (adapter["id"],)).fetchall():
                marks = ", ".join("?" for _ in row.keys())  # noqa: SIM118
                copies = (_copy(dict(row), table, key, name, number) for number in range(1, ADAPTERS))
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)
    database.close()


def _copy(row: dict[str, Any], table: str, key: str, name: str, number: int) -> tuple[Any, ...]:
    row[key] = f"{row[key][:-5]}{number:05d}"
    if table == "adapters":
        row |= {"name": f"{name}-{number:05d}", "search_text": row["search_text"].replace(name, f"{name}-{number:05d}")}
    return tuple(row.values())


def _asked(world: World) -> int:
    """Return how often lists of adapters were requested."""
    with world.api(world.admin_key) as admin:
        lines = admin.get("/metrics").text.splitlines()
    counted = (line for line in lines if line.startswith("loragate_http_requests_total{"))
    return sum(int(float(line.split()[-1])) for line in counted if 'route="/v1/adapters"' in line and '"GET"' in line)


def test_one_page_at_a_time_is_requested_and_shown(signed_in: Callable[..., Page], world: World) -> None:
    world.upload("many", seed=31, tags="crowd", description="One of very many.")
    _multiply(world, "many")
    world.upload("lonely", seed=32, tags="rare")
    asked, began = _asked(world), time.monotonic()
    page = signed_in(path="/adapters")
    rows = page.get_by_role("region", name="Adapters").get_by_role("row")
    expect(rows).to_have_count(51)
    for number in (2, 3):
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text(f"Page {number}")).to_be_visible()
        expect(rows).to_have_count(51)
    page.get_by_label("Search names, tags and descriptions").fill("many-02345")
    expect(page.get_by_role("link", name="many-02345")).to_be_visible()
    expect(rows).to_have_count(2)
    page.get_by_label("Search names, tags and descriptions").fill("")
    expect(rows).to_have_count(51)
    page.get_by_role("button", name="rare", exact=True).click()
    expect(rows).to_have_count(2)
    expect(page.get_by_role("button", name="Remove the tag rare from the filter")).to_be_visible()
    polls = (time.monotonic() - began) / POLL_SECONDS
    assert _asked(world) - asked <= 6 + polls + 1


def test_no_page_is_longer_than_the_servers_limit(world: World) -> None:
    with world.api() as api:
        rejected: httpx.Response = api.get("/v1/adapters", params={"limit": 1_000_000})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "limit")
