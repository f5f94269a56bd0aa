"""The files of a finished demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from loragate.demo.recipe import Recipe

MODEL = "loragate-demo"


@dataclass(frozen=True)
class DemoTenant:
    """`adapters` maps each adapter's name to its PEFT folder."""

    name: str
    adapters: Mapping[str, Path]


@dataclass(frozen=True)
class DemoAssets:
    """`digest` identifies the recipe: another digest, other weights. All files are under `home`."""

    digest: str
    home: Path
    model_dir: Path
    tenants: tuple[DemoTenant, ...]


def assets_in(root: Path, recipe: Recipe) -> DemoAssets:
    """Return where the parts of `recipe`'s demo are, or will be, under `root`."""
    home = root / recipe.digest[:16]
    return DemoAssets(
        digest=recipe.digest,
        home=home,
        model_dir=home / MODEL,
        tenants=tuple(
            DemoTenant(
                name=tenant.name,
                adapters=MappingProxyType(
                    {
                        adapter.style.name: home / "adapters" / tenant.name / adapter.style.name
                        for adapter in tenant.adapters
                    }
                ),
            )
            for tenant in recipe.tenants
        ),
    )
