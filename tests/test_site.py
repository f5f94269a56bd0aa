"""The documentation builds as a site without warnings, and without anything from other hosts."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the site, which is built if a file is newer. A broken link, a missing anchor or a page that the navigation
    lacks stops the build."""
    built = subprocess.run(["make", "build/site/index.html"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "build/site"


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    loaded = re.compile(
        r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//|<link[^>]*rel="?stylesheet[^>]*href="?(?:https?:)?//'
    )
    pages = list(site.glob("**/*.html"))
    assert len(pages) > 90
    assert not [page for page in pages if loaded.search(page.read_text())]
    assert (site / "assets/mermaid/start.js").exists(), "the theme would load the diagrams' library from elsewhere"


def test_language_models_find_every_page(site: Path) -> None:
    linked = re.findall(r"^- \[.+?\]\((\S+)\): \S", (site / "llms.txt").read_text(), re.MULTILINE)
    assert len(linked) > 35
    assert not [page for page in linked if not (site / page).is_file()]


def test_the_references_are_those_of_the_program(site: Path) -> None:
    expected = {
        "rest": "### POST /v1/chat/completions",
        "grpc": "## InferenceService",
        "commands": "## loragate adapters canary",
        "settings": "`LORAGATE_ENGINE__ADAPTER_SLOTS` | `16`",
    }
    for page, text in expected.items():
        assert text in (site / f"reference/{page}.md").read_text()
