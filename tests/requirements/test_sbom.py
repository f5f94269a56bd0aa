"""The bill of materials of a wheel lists all that it depends on, in the form of CycloneDX 1.6."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from packaging.requirements import Requirement
from requirement_lists import LISTS, PROJECT, locked

TEXT = {"type": "string", "minLength": 1}
HASH = {
    "type": "object",
    "required": ["alg", "content"],
    "additionalProperties": False,
    "properties": {"alg": {"const": "SHA-256"}, "content": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
}
EXPRESSION = {
    "type": "object",
    "required": ["expression"],
    "additionalProperties": False,
    "properties": {"expression": TEXT},
}
NAMED = {
    "type": "object",
    "required": ["license"],
    "additionalProperties": False,
    "properties": {"license": {"type": "object", "required": ["name"], "properties": {"name": TEXT}}},
}
COMPONENT = {
    "type": "object",
    "required": ["type", "bom-ref", "name", "version", "purl", "hashes"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "bom-ref": TEXT,
        "name": TEXT,
        "version": TEXT,
        "purl": {"type": "string", "pattern": "^pkg:pypi/[a-z0-9-]+@[^@]+$"},
        "hashes": {"type": "array", "items": HASH, "minItems": 1},
        "licenses": {
            "anyOf": [
                {"type": "array", "items": EXPRESSION, "minItems": 1, "maxItems": 1},
                {"type": "array", "items": NAMED, "minItems": 1},
            ]
        },
    },
}
# The part of the standard's schema that our files use.
CYCLONEDX = {
    "type": "object",
    "required": ["bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"type": "string", "pattern": "^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "version": {"const": 1},
        "metadata": {
            "type": "object",
            "required": ["timestamp", "component"],
            "additionalProperties": False,
            "properties": {
                "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
                "component": COMPONENT,
            },
        },
        "components": {"type": "array", "items": COMPONENT, "uniqueItems": True},
        "dependencies": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["ref", "dependsOn"],
                "additionalProperties": False,
                "properties": {"ref": TEXT, "dependsOn": {"type": "array", "items": TEXT, "uniqueItems": True}},
            },
        },
    },
}


def write_bill(folder: Path) -> dict[str, Any]:
    (folder / f"loragate-{PROJECT['version']}-py3-none-any.whl").write_bytes(b"a wheel")
    (folder / "loragate-0.0.9-py3-none-any.whl").write_bytes(b"an old wheel")
    command = [sys.executable, str(LISTS / "sbom.py"), str(folder)]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}, capture_output=True)
    bill: dict[str, Any] = json.loads((folder / f"loragate-{PROJECT['version']}.cdx.json").read_text())
    return bill


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_bill(tmp_path_factory.mktemp("dist"))


def test_it_has_the_form_of_the_standard(bill: dict[str, Any]) -> None:
    jsonschema.validate(bill, CYCLONEDX)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_it_describes_the_wheel(bill: dict[str, Any]) -> None:
    described = bill["metadata"]["component"]
    assert (described["name"], described["version"]) == ("loragate", PROJECT["version"])
    assert described["hashes"][0]["content"] == hashlib.sha256(b"a wheel").hexdigest()
    assert described["licenses"] == [{"expression": "Apache-2.0"}]


def test_it_has_each_locked_package_that_is_served_with_and_none_of_the_tests(bill: dict[str, Any]) -> None:
    found = {each["name"]: each["version"] for each in bill["components"]}
    served, tested, torch = locked("serve"), locked("dev"), locked("torch")
    assert len(served) > 100
    assert found.items() >= served.items()
    assert found.items() >= torch.items()
    assert found.items() <= (served | tested | torch).items()
    assert found.keys() >= {"s3fs", "botocore"}  # another extra of ours
    assert not found.keys() & {"pytest", "mypy", "ruff", "moto", "openai", "boto3"}


def test_hashes_are_those_of_the_lists(bill: dict[str, Any]) -> None:
    lists = "".join((LISTS / f"{name}.txt").read_text() for name in ("serve", "dev", "torch"))
    for each in bill["components"]:
        block = lists[lists.index(f"\n{each['name']}==") + 1 :].split("\n    # via")[0]
        assert [found["content"] for found in each["hashes"]] == [
            line.split("sha256:")[1][:64] for line in block.splitlines()[1:]
        ], each["name"]


def test_licences_are_known_where_a_package_declares_one(bill: dict[str, Any]) -> None:
    licences = {each["name"]: each.get("licenses") for each in bill["components"]}
    assert licences["torch"]
    assert licences["fastapi"] == [{"expression": "MIT"}]
    assert len([name for name, found in licences.items() if not found]) < 30  # those of other systems, and CUDA's


def test_everything_in_it_is_needed_by_something(bill: dict[str, Any]) -> None:
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    components = {each["bom-ref"] for each in bill["components"]}
    root = bill["metadata"]["component"]["bom-ref"]
    assert needs.keys() == components | {root}
    reached: set[str] = set()
    waiting = [root]
    while waiting:
        for ref in needs[waiting.pop()]:
            if ref not in reached:
                reached.add(ref)
                waiting.append(ref)
    assert reached == components
    direct = {ref.split("/")[1].split("@")[0] for ref in needs[root]}
    assert {Requirement(text).name for text in PROJECT["dependencies"]} <= direct


def test_it_is_the_same_each_time(bill: dict[str, Any], tmp_path: Path) -> None:
    assert write_bill(tmp_path) == bill
