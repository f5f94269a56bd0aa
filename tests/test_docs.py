"""The documents are correct: links lead somewhere, and what they name exists."""

import re
from pathlib import Path

import pytest

from loragate.finetune.jobs.hyperparameters import DpoHyperparameters

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not broken


def test_every_part_is_in_the_architecture() -> None:
    import tomllib

    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    parts = {package.split(".")[1] for package in packages} - {"v1"}
    architecture = (ROOT / "docs/architecture.md").read_text()
    assert not [part for part in parts if f"`{part}/`" not in architecture]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_project_exist(page: Path) -> None:
    folders = "|".join(
        path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "build"))
    )
    named = re.findall(rf"`((?:{folders})/[\w/.-]*[\w/])`", page.read_text())
    assert not [path for path in named if "NNNN" not in path and not (ROOT / path).exists()]


def test_documents_refer_only_to_the_project() -> None:
    """No document mentions machines or folders that a reader does not have."""
    for page in PAGES:
        assert not re.search(r"\.\./shared|/work/|/root/|/home/", page.read_text()), page


def test_the_proofs_of_the_security_page_exist() -> None:
    named = re.findall(r"`([\w/]+/test_\w+\.py)::(test_\w+)`", (ROOT / "docs/security.md").read_text())
    assert len(named) > 50
    missing = [f"{file}::{test}" for file, test in named if f"def {test}(" not in (ROOT / "tests" / file).read_text()]
    assert not missing


def test_each_attack_of_the_security_page_has_a_row_with_a_test() -> None:
    page = (ROOT / "docs/security.md").read_text()
    tables = re.findall(
        r"^\| attack or fault \| response \| test \|\n\|---\|---\|---\|\n((?:\|.+\n?)+)", page, re.MULTILINE
    )
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.splitlines()]
    assert len({attack for attack, *_ in rows}) == len(rows) >= 150
    assert not [
        row for row in rows if len(row) != 3 or not re.fullmatch(r"`[\w/]+\.py::\w+`(, `[\w/]+\.py::\w+`)*", row[2])
    ]


def test_every_hyperparameter_is_explained_with_its_bounds() -> None:
    rows = [line for line in (ROOT / "docs/fine-tuning.md").read_text().splitlines() if line.startswith("| `")]
    for name, field in DpoHyperparameters.model_json_schema()["properties"].items():
        (row,) = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        bounds = [
            option[bound]
            for option in (field, *field.get("anyOf", ()))
            for bound in ("minimum", "exclusiveMinimum", "maximum")
            if bound in option
        ]
        assert not [bound for bound in bounds if f"{bound:,}" not in row], row
        choices = field.get("enum", [])
        assert not [choice for choice in choices if f"`{choice}`" not in row], row


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert sorted(numbers) == sorted(set(numbers))
