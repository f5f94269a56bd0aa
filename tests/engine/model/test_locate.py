"""Models from a hub: the commit that is served is pinned, or logged."""

import logging
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from loragate.engine.config import EngineConfig
from loragate.engine.model.checkpoint import locate, model_name
from loragate.engine.model.errors import ModelRejected
from loragate.engine.startup.build import load

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


@pytest.mark.parametrize("model", ["org/name", "org/name@main", "org/name@v1.0", f"org/name@{COMMIT[:12]}"])
def test_an_operator_can_require_a_commit(asked: list[tuple[str, str | None]], model: str) -> None:
    with pytest.raises(ModelRejected, match=r"engine\.require_pinned_model.*org/name@"):
        locate(model, require_commit=True)
    assert asked == []
    assert locate(f"org/name@{COMMIT}", require_commit=True).name == COMMIT


def test_a_branch_that_is_named_like_a_commit_is_not_one(asked: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ModelRejected, match=f"returned commit {COMMIT} for org/name@d"):
        locate("org/name@" + "d" * 40, require_commit=True)


def test_a_folder_needs_no_commit(tmp_path: Path, asked: list[tuple[str, str | None]]) -> None:
    assert locate(str(tmp_path), require_commit=True) == tmp_path
    assert asked == []


def test_the_engine_requires_what_its_setting_says(asked: list[tuple[str, str | None]], tmp_path: Path) -> None:
    config = EngineConfig(model="org/name", listen="unix:/none", cache_dir=tmp_path, require_pinned_model=True)
    with pytest.raises(ModelRejected, match="require_pinned_model"):
        load(config)
    assert asked == []


def test_a_folder_with_any_name_is_a_folder(tmp_path: Path, asked: list[tuple[str, str | None]]) -> None:
    folder = tmp_path / "name@main"
    folder.mkdir()
    assert locate(str(folder)) == folder
    assert model_name(str(folder)) == "name@main"
    assert asked == []
