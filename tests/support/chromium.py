"""Debian's Chromium, driven by Playwright; the build without windows, if it is installed, takes a quarter less CPU."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def launched_chromium() -> Iterator[Browser]:
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert chromium is not None, "the panel is tested with Debian's Chromium: apt install chromium-headless-shell"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()
