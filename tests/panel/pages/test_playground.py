"""Chats with one model, and with two."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.panel.world import World


def _say(page: Page, words: str) -> None:
    page.get_by_label("Your message").fill(words)
    page.get_by_role("button", name="Send", exact=True).click()


def test_a_response_streams(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/playground")
    world.gateway.hold_after(3)
    try:
        _say(page, "Hello <b>there</b>")
        talk = page.get_by_role("log", name="First answer: conversation")
        expect(talk).to_contain_text("Hello <b>there</b>")
        expect(talk).to_contain_text("Th")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        assert "speaking" not in talk.inner_text()
    finally:
        world.gateway.resume()
        world.gateway.hold_after(None)
    expect(talk).to_contain_text("This is the base model speaking.")
    expect(page.get_by_text("First token after")).to_be_visible()
    page.get_by_text("This request as code").click()
    expect(page.locator("pre").first).to_contain_text("$LORAGATE_API_KEY")
    assert world.key not in page.content()


def test_two_models_respond_to_the_same_message(signed_in: Callable[..., Page], world: World) -> None:
    digest = world.upload("poet", seed=5)["digest"][7:15]
    page = signed_in(path="/playground")
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="poet", exact=True).click()
    _say(page, "Who are you?")
    expect(page.get_by_role("log", name="First answer: conversation")).to_contain_text("the base model speaking.")
    expect(page.get_by_role("log", name="Second answer: conversation")).to_contain_text(f"{digest} speaking.")


def test_failures_are_shown_in_place_of_the_response(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/playground?model=unknown")
    _say(page, "Hello")
    expect(page.get_by_role("alert")).to_contain_text("unknown")


def test_a_gateway_that_comes_back_is_detected(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/adapters")
    expect(page.get_by_role("heading", name="Adapters", exact=True)).to_be_visible()
    world.gateway.stop()
    try:
        page.goto(f"{world.panel.url}/playground")
        expect(page.get_by_role("alert")).to_contain_text("is not responding")
    finally:
        world.gateway.start()
    expect(page.get_by_role("alert")).to_have_count(0)  # by itself, though this page does not poll
    _say(page, "Hello")
    expect(page.get_by_role("log", name="First answer: conversation")).to_contain_text("speaking.")


@pytest.mark.parametrize("answer", ["Paris.", ""])
def test_reasoning_is_shown_apart_from_the_answer(signed_in: Callable[..., Page], world: World, answer: str) -> None:
    page = signed_in(path="/playground")
    world.gateway.response = f"<think>It is in France.</think>{answer}"
    try:
        _say(page, "Where is it?")
        expect(page.get_by_text("First token after")).to_be_visible()
    finally:
        world.gateway.response = None
    expect(page.get_by_label("Reasoning")).to_have_text("It is in France.")
    words = page.locator(".said-by.assistant .words")
    expect(words).to_have_text(answer)
    expect(words).to_be_visible(visible=bool(answer))
