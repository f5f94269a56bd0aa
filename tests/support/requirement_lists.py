"""The lists of packages in requirements/, and what pyproject.toml requires."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
LISTS = ROOT / "requirements"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def locked(name: str) -> dict[str, str]:
    """Return the version of each package in a list, and in those that it includes."""
    text = (LISTS / f"{name}.txt").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    for included in re.findall(r"^-r (\w+)\.txt$", text, re.MULTILINE):
        versions |= locked(included)
    return versions


def ours(extra: str) -> Iterator[Requirement]:
    """Yield what an extra of loragate requires."""
    for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]:
        requirement = Requirement(text)
        if requirement.name != "loragate":
            yield requirement
        for included in sorted(requirement.extras) if requirement.name == "loragate" else ():
            yield from ours(included)
