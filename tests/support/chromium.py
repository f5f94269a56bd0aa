"""Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def launched_chromium() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "the panel is tested with Debian's chromium: apt install chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()
