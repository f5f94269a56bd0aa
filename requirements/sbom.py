"""Write the bill of materials of a wheel beside it, in CycloneDX 1.6: all that `loragate[all]` installs on any system.

Versions, hashes and who needs whom are those of the lists in this folder; licences are those of the installed packages.
Each hash is that of one of the files in which a version is distributed. With `SOURCE_DATE_EPOCH` the output is the same
each time.
"""

import hashlib
import json
import os
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LISTS = ("serve", "dev", "torch")


@dataclass(frozen=True)
class Package:
    """A package in the lists; `needed_by` has the names of those that require it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    needed_by: frozenset[str]

    @property
    def url(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lists() -> dict[str, Package]:
    """Return the packages of all lists by name."""
    text = "".join((HERE / f"{name}.txt").read_text() for name in LISTS)
    return {found.name: found for found in map(read_package, re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:])}


def read_package(lines: str) -> Package:
    """Read the lines of one package."""
    found = re.match(r"([\w.-]+)==(\S+)", lines)
    assert found, lines
    needed_by = re.findall(r"^    #(?: via)? +([\w.-]+)", lines, re.MULTILINE)
    hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", lines)
    return Package(found[1], found[2], tuple(hashes), frozenset(needed_by) - {"via"})


def requirements_of(extra: str, project: dict[str, Any]) -> set[str]:
    """Return the names that an extra of the project requires directly."""
    names = set()
    for text in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        found = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", text)
        assert found, text
        names |= {found[1].lower().replace("_", "-")} - {project["name"]}
        if found[1] == project["name"]:
            names |= {name for included in found[2].split(",") for name in requirements_of(included, project)}
    return names


def reachable(direct: set[str], packages: dict[str, Package]) -> dict[str, Package]:
    """Return the packages that some need directly or through others."""
    found: set[str] = set()
    new = direct
    while new:
        found |= new
        new = {name for name, package in packages.items() if package.needed_by & new} - found
    return {name: packages[name] for name in sorted(found)}


def licences(package: Package) -> list[dict[str, Any]]:
    """Return the licences that the installed package declares; none if it is not installed, or declares none."""
    try:
        said = metadata.metadata(package.name)
    except metadata.PackageNotFoundError:
        return []
    if said["License-Expression"]:
        return [{"expression": said["License-Expression"]}]
    classified = [text.split(" :: ")[-1] for text in said.get_all("Classifier") or () if text.startswith("License ::")]
    short = [text for text in (said["License"],) if text and len(text) < 100 and "\n" not in text]
    return [{"license": {"name": name}} for name in classified or short]


def component(package: Package) -> dict[str, Any]:
    """Return a package as CycloneDX describes it."""
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.url,
        "name": package.name,
        "version": package.version,
        "purl": package.url,
        "hashes": [{"alg": "SHA-256", "content": content} for content in package.hashes],
    }
    return described | ({"licenses": found} if (found := licences(package)) else {})


def bill_of_materials(project: dict[str, Any], wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of the project's wheel."""
    direct = requirements_of("all", project)
    packages = reachable(direct, read_lists())
    url = f"pkg:pypi/{project['name']}@{project['version']}"
    needs = {name: [each.url for each in packages.values() if name in each.needed_by] for name in packages}
    bill: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": url,
                "name": project["name"],
                "version": project["version"],
                "purl": url,
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
                "licenses": [{"expression": project["license"]}],
            },
        },
        "components": [component(package) for package in packages.values()],
        "dependencies": [
            {"ref": url, "dependsOn": [packages[name].url for name in sorted(direct)]},
            *({"ref": packages[name].url, "dependsOn": needed} for name, needed in needs.items()),
        ],
    }
    return bill | {"serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill)).urn}


def moment() -> float:
    """Return the time of the build in seconds."""
    return float(os.environ.get("SOURCE_DATE_EPOCH") or datetime.now(UTC).timestamp())


def main() -> None:
    """Write the bill of materials of the wheel in the folder that the command line names."""
    folder = Path(sys.argv[1])
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    start = f"{project['name']}-{project['version']}"
    [wheel] = folder.glob(f"{start}-*.whl")
    bill = bill_of_materials(project, wheel)
    file = folder / f"{start}.cdx.json"
    file.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{file}: {len(bill['components'])} packages")


if __name__ == "__main__":
    main()
