"""deploy/docker/compose.yaml as Docker Compose reads it, with the .env that make-env writes."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "docker"
_VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")


@dataclass(frozen=True)
class Composition:
    """`raw` is the file as it is written; `services` has every variable replaced by its value."""

    raw: dict[str, Any]
    services: dict[str, Any]
    environment: dict[str, str]

    def variables(self, service: str) -> dict[str, str]:
        """Return a container's environment without the empty variables, which loragate ignores."""
        return {name: value for name, value in self.services[service].get("environment", {}).items() if value}


def make_env(folder: Path) -> dict[str, str]:
    """Return what make-env writes to .env, in a new copy of the folder."""
    for name in ("make-env", "env.example"):
        shutil.copy(FOLDER / name, folder / name)
    subprocess.run(["./make-env"], cwd=folder, check=True, capture_output=True)
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def composition(environment: dict[str, str], **more: str) -> Composition:
    """Return compose.yaml with the variables of .env, and with others in place of some."""
    raw = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    known = environment | more
    return Composition(raw, _interpolated(raw["services"], known), known)


def variables_of(node: Any) -> set[tuple[str, str]]:
    """Return all variables that a part of the file names, each with what follows its name: `:-`, `:?` or nothing."""
    if isinstance(node, dict):
        return {found for value in node.values() for found in variables_of(value)}
    if isinstance(node, list):
        return {found for value in node for found in variables_of(value)}
    return {(match[1], match[2] or "") for match in _VARIABLE.finditer(node)} if isinstance(node, str) else set()


def _interpolated(node: Any, known: dict[str, str]) -> Any:
    if isinstance(node, dict):
        return {name: _interpolated(value, known) for name, value in node.items()}
    if isinstance(node, list):
        return [_interpolated(value, known) for value in node]
    return _VARIABLE.sub(lambda found: _value(found, known), node).replace("$$", "$") if isinstance(node, str) else node


def _value(found: re.Match[str], known: dict[str, str]) -> str:
    value = known.get(found[1], "")
    if not value and found[2] == ":?":
        raise AssertionError(f"{found[1]} is not set: {found[3]}")
    return value or (found[3] if found[2] == ":-" else "")
