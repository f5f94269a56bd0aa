import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.command_runner import as_new_tenant
from tests.cli.running import real_gateway


@dataclass(frozen=True)
class SharedGateway:
    """A gateway that the tests of a file share, each as a new tenant; `folder` is its data directory."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with real_gateway(folder) as url:
        yield SharedGateway(url, folder)


@pytest.fixture
def tenant(alone: None, shared_gateway: SharedGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands run as a new tenant of the shared gateway."""
    as_new_tenant(shared_gateway.url, monkeypatch, tmp_path.name)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no settings from the environment."""
    for name in list(os.environ):
        if name.startswith(("LORAGATE_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
