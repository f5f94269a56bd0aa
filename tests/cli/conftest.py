import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no settings from the environment."""
    for name in list(os.environ):
        if name.startswith(("LORAGATE_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
