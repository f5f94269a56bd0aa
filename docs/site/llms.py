"""Writes `llms.txt`, the list of all pages for language models, and each page's Markdown beside its HTML."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

_navigation: list[Navigation] = []
_markdown: dict[str, str] = {}
_SENTENCE = re.compile(r".+?[.!?](?=\s|$)", re.DOTALL)


def on_nav(nav: Navigation, *, config: Any, files: Files) -> None:
    """Keep the navigation."""
    _navigation[:] = [nav]


def on_page_content(html: str, *, page: Page, config: Any, files: Files) -> None:
    """Keep the page's Markdown, in which all links lead to pages of the site."""
    _markdown[page.file.src_uri] = page.markdown or ""


def on_post_build(*, config: Any) -> None:
    """Write the list and the pages."""
    site = Path(config.site_dir)
    for name, text in _markdown.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (site / "llms.txt").write_text("\n".join(lines(_navigation[0], config)) + "\n")


def lines(nav: Navigation, config: Any) -> Iterator[str]:
    """Yield the lines of llms.txt: the summary, then each section's pages with what they are for."""
    yield from (f"# {config.site_name}", "", f"> {config.site_description}", "", "## Overview", "")
    yield from (entry(each) for each in nav.items if isinstance(each, Page))
    for section in nav.items:
        if isinstance(section, Section):
            yield from ("", f"## {section.title}", "")
            yield from (entry(each) for each in section.children if isinstance(each, Page))


def entry(page: Page) -> str:
    """Return the line of a page: a link to its Markdown, and its first sentence."""
    return f"- [{page.title}]({page.file.src_uri}): {summary(_markdown[page.file.src_uri])}"


def summary(markdown: str) -> str:
    """Return the first sentence of a page's first paragraph, without Markdown."""
    paragraphs = [each for each in markdown.split("\n\n") if each.strip() and not re.match(r"[#|`<!-]", each)]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    sentence = _SENTENCE.match(text)
    return sentence[0] if sentence else text
