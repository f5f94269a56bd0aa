"""The labels of a text as bars."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.panel.world import World


@pytest.mark.long
def test_a_text_gets_bars(signed_in: Callable[..., Page], world: World) -> None:
    """The engine's logits are 3 and -4."""
    world.upload("tickets", seed=41, labels=("<b>billing</b>", "technical"))
    world.upload("speaker", seed=42)
    page = signed_in(path="/adapters/tickets")
    page.get_by_role("link", name="classifies: <b>billing</b>, technical").click()
    expect(page.get_by_label("Model")).to_have_value("tickets:1")
    page.get_by_label("Text").fill("My card was charged twice.")
    page.get_by_role("button", name="Classify", exact=True).click()
    labels = page.get_by_label("Labels")
    expect(labels.get_by_role("img")).to_have_count(2)
    expect(labels.get_by_role("img").first).to_have_accessible_name("<b>billing</b>: 0.999")
    expect(labels).to_contain_text("technical")
    page.get_by_text("This request as code").click()
    expect(page.locator("pre").first).to_contain_text("/v1/classify")
    assert world.key not in page.content()

    page.goto(f"{world.panel.url}/classify?model=speaker")
    page.get_by_role("button", name="Classify", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("no head for labels")
