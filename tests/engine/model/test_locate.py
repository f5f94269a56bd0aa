"""Models from a hub: the commit that is served is pinned, or logged."""

import logging
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from loragate.engine.model.checkpoint import locate, model_name

COMMIT = "c" * 40


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str | None]]:
    """What the hub is asked for; its newest commit is COMMIT."""
    seen: list[tuple[str, str | None]] = []

    def download(repository: str, *, revision: str | None, **_: Any) -> str:
        seen.append((repository, revision))
        return str(tmp_path / "snapshots" / COMMIT)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return seen


def test_a_pinned_commit_is_asked_for(asked: list[tuple[str, str | None]], caplog: pytest.LogCaptureFixture) -> None:
    assert locate(f"org/name@{COMMIT}").name == COMMIT
    assert asked == [("org/name", COMMIT)]
    assert caplog.records == []
    assert model_name(f"org/name@{COMMIT}") == "org/name"


@pytest.mark.parametrize("model", ["org/name", "org/name@main"])
def test_a_commit_that_is_not_pinned_is_logged(
    asked: list[tuple[str, str | None]], caplog: pytest.LogCaptureFixture, model: str
) -> None:
    with caplog.at_level(logging.WARNING):
        locate(model)
    assert asked == [("org/name", None if model == "org/name" else "main")]
    assert f"--model org/name@{COMMIT}" in caplog.text


def test_a_folder_with_any_name_is_a_folder(tmp_path: Path, asked: list[tuple[str, str | None]]) -> None:
    folder = tmp_path / "name@main"
    folder.mkdir()
    assert locate(str(folder)) == folder
    assert model_name(str(folder)) == "name@main"
    assert asked == []
