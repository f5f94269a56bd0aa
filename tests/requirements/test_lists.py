"""The lists of packages in requirements/ are complete, and agree with pyproject.toml and constraints.txt."""

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from requirement_lists import LISTS, ROOT, locked, ours


def needed(requirements: Iterator[Requirement]) -> list[Requirement]:
    """Return requirements with all that they require here, by the metadata of the packages installed."""
    waiting, found, seen = list(requirements), [], set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        found.append(requirement)
        if key in seen:
            continue
        seen.add(key)
        for text in importlib.metadata.requires(requirement.name) or ():
            child = Requirement(text)
            if not child.marker or any(child.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)):
                waiting.append(child)
    return found


@pytest.mark.parametrize("extra", ["serve", "dev"])
def test_a_list_has_all_that_its_extra_needs(extra: str) -> None:
    """`pip install --no-deps` adds nothing, so that a list without a package would break what needs it."""
    versions, wanted = locked(extra) | locked("torch"), needed(ours(extra))
    assert len(wanted) > 100
    missing = [str(each) for each in wanted if canonicalize_name(each.name) not in versions]
    assert not missing, "run `make lock`"
    other = [
        (str(each), versions[canonicalize_name(each.name)])
        for each in wanted
        if not each.specifier.contains(versions[canonicalize_name(each.name)], prereleases=True)
    ]
    assert not other, "run `make lock`"


def test_serving_installs_nothing_that_only_tests_need() -> None:
    assert not locked("serve").keys() & {"pytest", "mypy", "ruff", "moto", "openai", "uv"}


@pytest.mark.parametrize("path", sorted(LISTS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_file_has_a_hash(path: Path) -> None:
    blocks = re.split(r"^(?=\w)", path.read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert not [block for block in blocks if not re.match(r"[\w.-]+==\S+.*\\\n    --hash=sha256:[0-9a-f]{64}", block)]


def test_the_lists_have_the_versions_of_the_constraints() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert locked("dev") | locked("torch") == pinned
