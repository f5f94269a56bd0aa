"""Imports of the parts as `loragate.…` from a checkout that is not installed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).parents[2]


def installed() -> bool:
    return importlib.util.find_spec("loragate") is not None


def find_parts() -> None:
    """Make `loragate.…` resolve to the parts of this checkout."""
    package = ModuleType("loragate")
    package.__path__ = [str(_ROOT), str(_ROOT / "proto" / "loragate")]
    sys.modules["loragate"] = package
