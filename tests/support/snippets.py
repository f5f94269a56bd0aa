"""The snippets of the documents: what they show in fenced blocks."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/migrate/*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)

# The blocks that tests/e2e/test_docs_snippets.py does not run: the page and beginning, the reason, and the test of what
# they show.
NOT_RUN = [
    (
        "docs/deploy.md: docker build -f deploy/docker/Dockerfile --target serve",
        "needs docker; the test builds with buildah",
        "tests/deploy/test_images.py::test_it_answers_with_each_adapter_on_a_read_only_file_system",
    ),
    (
        "docs/deploy.md: cd deploy/docker",
        "needs docker and a registry of images",
        "tests/deploy/test_compose.py::test_the_server_accepts_its_settings",
    ),
    (
        "docs/deploy.md: docker build -f deploy/docker/Dockerfile.cuda",
        "needs docker and a GPU",
        "tests/deploy/test_dockerfiles.py::test_an_image_runs_a_server_as_an_ordinary_user",
    ),
    (
        "docs/kubernetes.md: docker build",
        "needs docker and a cluster; the test renders what is applied",
        "tests/deploy/test_kubernetes_rendered.py::test_an_installation_is_whole",
    ),
    (
        "docs/kubernetes.md: in_gateway()",
        "needs a cluster; the test runs the same commands beside the same parts",
        "tests/deploy/test_kubernetes_parts.py::test_from_nothing_to_an_answer",
    ),
    (
        "docs/kubernetes.md: kubectl label",
        "needs a cluster",
        "tests/deploy/test_kubernetes.py::test_the_page_names_what_the_manifests_have",
    ),
    (
        "docs/kubernetes.md: kubectl -n loragate scale",
        "needs a cluster",
        "tests/deploy/test_kubernetes.py::test_the_page_names_what_the_manifests_have",
    ),
    (
        "docs/replicas.md: LORAGATE_DATABASE_URL=",
        "needs a database and an engine on other machines",
        "tests/e2e/test_fleet.py::test_an_engine_registers_serves_and_leaves",
    ),
    (
        "docs/install.md: uvx",
        "installs from an index",
        "tests/test_packaging.py::test_the_bare_wheel_serves_the_demo_and_names_the_extras_that_commands_lack",
    ),
    (
        "docs/install.md: uv pip install",
        "installs from an index",
        "tests/test_packaging.py::test_the_wheel_works_without_the_checkout",
    ),
    (
        "docs/install.md: make serve",
        "installs from an index, and runs this test",
        "tests/requirements/test_install.py::test_uv_installs_from_pips_folder_of_packages",
    ),
    (
        "docs/security.md: pip install --require-hashes",
        "installs from an index",
        "tests/requirements/test_install.py::test_another_file_under_a_listed_version_is_not_installed",
    ),
    (
        "docs/security.md: pip install pip-audit",
        "asks a service for vulnerabilities",
        "tests/requirements/test_advisories.py::test_no_locked_version_has_a_known_vulnerability",
    ),
]


OTHER_SETTINGS = ("# ~/.codex/config.toml",)  # how blocks of TOML begin that are another program's


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, whose path begins at the root of the checkout."""

    page: str
    language: str
    text: str

    @property
    def beginning(self) -> str:
        return f"{self.page}: {self.text.removeprefix('$ ')}"

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Return each command line of a console, and the lines that are shown below it."""
        return [(command, shown.splitlines()) for command, shown in _COMMAND.findall(self.text)]


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in one of these languages."""
    return [
        Block(str(page.relative_to(ROOT)), language, textwrap.dedent(text))
        for page in PAGES
        for _, language, text in _BLOCK.findall(page.read_text())
        if language in languages
    ]
