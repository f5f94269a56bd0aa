"""Neither the locked versions nor the minimum ones have a vulnerability that requirements/advisories.toml lists."""

import re
import tomllib
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from requirement_lists import LISTS, PYPROJECT, locked, ours


def advisories() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads((LISTS / "advisories.toml").read_text())["advisories"]
    return found


def test_no_locked_version_has_a_known_vulnerability() -> None:
    """An advisory for a package that is no longer used is removed, so that the list stays one of what matters."""
    versions = locked("dev") | locked("torch")
    old = [
        (each["package"], versions[each["package"]], each["ids"])
        for each in advisories()
        if Version(versions[each["package"]]) < Version(each["fixed_in"])
    ]
    assert not old


def test_no_minimum_version_has_a_known_vulnerability() -> None:
    fixed = {each["package"]: Version(each["fixed_in"]) for each in advisories()}
    assert len(fixed) == len(advisories()) > 25
    direct = [*map(Requirement, PYPROJECT["build-system"]["requires"]), *ours("dev")]
    floors = {
        str(each): [Version(part.version) for part in each.specifier if part.operator in (">=", "==", "~=")]
        for each in direct
        if canonicalize_name(each.name) in fixed
    }
    assert len(floors) > 10
    assert {name: floor for name, floor in floors.items() if not floor or max(floor) < fixed[name_of(name)]} == {}


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def test_every_advisory_has_an_identifier() -> None:
    identifiers = [identifier for each in advisories() for identifier in each["ids"]]
    assert not [x for x in identifiers if not re.fullmatch(r"CVE-\d{4}-\d{4,}|GHSA(-\w{4}){3}", x)]
    assert all(each["what"] for each in advisories())
