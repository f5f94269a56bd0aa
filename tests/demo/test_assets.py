"""The shipped demo: found in the package, compared with the recipe, and missed with a reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from loragate.demo import assets
from loragate.demo.assets import assets_in, read_assets, shipped_assets, shipped_mismatch, write_contents
from loragate.demo.recipe import Recipe


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that ships nothing yet."""
    monkeypatch.setattr(assets, "SHIPPED", tmp_path)
    return tmp_path


def test_contents_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = assets_in(tmp_path, Recipe())
    write_contents(written)
    assert read_assets(tmp_path) == written
    assert [tenant.name for tenant in written.tenants] == ["acme", "globex", "initech"]


def test_a_package_without_a_demo_says_how_to_make_it(shipped: Path) -> None:
    with pytest.raises(FileNotFoundError, match="loragate demo build --out"):
        shipped_assets()
    assert "ships no demo" in (shipped_mismatch() or "")


def test_another_recipe_than_the_shipped_one_is_reported(shipped: Path) -> None:
    write_contents(assets_in(shipped, Recipe()))
    assert shipped_mismatch() is None
    write_contents(assets_in(shipped, replace(Recipe(), seed=21)))
    assert "demo build" in (shipped_mismatch() or "")
    assert shipped_assets().digest != Recipe().digest
