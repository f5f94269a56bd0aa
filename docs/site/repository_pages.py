"""Adds the repository's own pages to the site, and the files that pages link to.

The README becomes the first page. A link to a file outside `docs/`, such as an example, leads to a copy of it, so the
site needs no address of the repository.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "examples/tinker/README.md": "examples-training.md",
}
DECISIONS = "decisions/index.md"
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages outside `docs/`, the list of decisions, and the files that pages link to."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, DECISIONS, content=decisions()))
    linked = {target for each in files.documentation_pages() for target in targets(each.src_uri, each.content_string)}
    for target in sorted(linked):
        if files.get_file_from_path(address(target)) is None and (ROOT / target).is_file():
            files.append(File.generated(config, address(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Return the page's text with links to where things are on the site."""
    here = page.file.src_uri

    def replaced(link: re.Match[str]) -> str:
        there = address(target_of(here, link[1]))
        return f"]({os.path.relpath(there, Path(here).parent)}{link[2] or ''})"

    return _LINK.sub(replaced, markdown)


def targets(page: str, text: str) -> list[str]:
    """Return the files to which a page links, relative to the repository."""
    return [target_of(page, link) for link, _ in _LINK.findall(text)]


def target_of(page: str, link: str) -> str:
    """Return the file to which a link on a page of the site leads, relative to the repository."""
    folder = Path(_SOURCES.get(page, f"docs/{page}")).parent
    return os.path.normpath(folder / link)


def address(target: str) -> str:
    """Return where a file of the repository is on the site."""
    if target == "docs/decisions":
        return DECISIONS
    return PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"repository/{target}")


def decisions() -> str:
    """Return the page that lists the decisions."""
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    titles = [re.sub(r"^#\s*(\d+\.?\s*)?", "", page.read_text().partition("\n")[0]) for page in pages]
    items = [f"{int(page.name[:4])}. [{title}]({page.name})" for page, title in zip(pages, titles, strict=True)]
    head = (
        "# Decisions\n\nFind out why something is as it is: choices that could reasonably have been made otherwise.\n\n"
    )
    return head + "\n".join(items) + "\n"
