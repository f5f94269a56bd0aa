from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from chromium import launched_chromium
from nicegui import Client, ui
from nicegui.elements.mixins.text_element import TextElement
from playwright.sync_api import Browser, BrowserContext, Page, expect

from loragate.panel.parts.elements.tag import div
from tests.panel.page_socket import sign_in
from tests.panel.world import WAIT_SECONDS, World, panel_world

Cookie = Any  # playwright has no public name for it

expect.set_options(timeout=WAIT_SECONDS * 1000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test what its page showed."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.when == "call" and report.failed and isinstance(page, Page):
        report.sections.append((f"The page at {page.url}", page.locator("body").inner_text(timeout=5000)))
    return report


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with panel_world(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched_chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def shared_context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser context that keeps the panel's scripts, compiled, from one test to the next."""
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    made.set_default_timeout(WAIT_SECONDS * 1000)
    yield made
    made.close()


@pytest.fixture
def context(shared_context: BrowserContext) -> Iterator[BrowserContext]:
    """A browser context without cookies that sends requests only to the panel and breaks no rule of its content
    security policy."""
    made = shared_context
    wrong: list[str] = []
    watches: dict[Any, Any] = {
        "request": lambda request: wrong.append(request.url) if "127.0.0.1" not in request.url else None,
        "console": lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None,
        "weberror": lambda error: wrong.append(str(error.error)),
    }
    for event, watch in watches.items():
        made.on(event, watch)
    yield made
    for page in made.pages:
        page.close()
    made.clear_cookies()
    for event, watch in watches.items():
        made.remove_listener(event, watch)
    assert not [each for each in wrong if not each.startswith(("data:", "blob:"))]


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture(scope="module")
def cookies(world: World) -> Callable[[str], Cookie]:
    """The session cookie for a key, shared by all tests of a file."""
    kept: dict[str, Cookie] = {}

    def cookie(key: str) -> Cookie:
        if key not in kept:
            kept[key] = new_cookie(world, key)
        return kept[key]

    return cookie


def new_cookie(world: World, key: str) -> Cookie:
    with world.panel.visitor() as visitor:
        (name, value), *_ = sign_in(visitor, key).cookies.items()
    return {"name": name, "value": value, "url": world.panel.url}


@pytest.fixture
def signed_in(page: Page, world: World, cookies: Callable[[str], Cookie]) -> Callable[..., Page]:
    """The page, signed in with this key, acme's unless stated otherwise."""

    def sign_in(key: str | None = None, path: str = "/", *, fresh_cookie: bool = False) -> Page:
        key = key or world.key
        page.context.add_cookies([new_cookie(world, key) if fresh_cookie else cookies(key)])
        page.goto(f"{world.panel.url}{path}")
        expect(page.get_by_role("navigation", name="Pages")).to_be_attached()
        return page

    return sign_in


@pytest.fixture
async def box() -> AsyncIterator[TextElement]:
    """A container on a page without a browser."""
    client = Client(ui.page("/"))
    with client:
        made = div("stack")
    yield made
    client.delete()
