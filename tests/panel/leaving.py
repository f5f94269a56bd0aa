"""What the browser would do if the page were left now."""

from playwright.sync_api import Page

_ASK = """() => {
    const leaving = new Event("beforeunload", { cancelable: true });
    window.dispatchEvent(leaving);
    return leaving.defaultPrevented;
}"""


def asks_before_leaving(page: Page) -> bool:
    """Return whether the browser would ask before leaving the page."""
    asks: bool = page.evaluate(_ASK)
    return asks
