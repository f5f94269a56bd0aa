"""The files of a finished demo: those that are shipped with the package, or those of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from loragate.demo.recipe import Recipe

MODEL = "loragate-demo"
SHIPPED = Path(__file__).parent / "data"
_CONTENTS = "contents.json"


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


def shipped_assets() -> DemoAssets:
    """Return the demo that is part of the package. Its folder may be read-only. Raise FileNotFoundError if there is
    none, in a checkout whose recipe has changed."""
    assets = read_assets(SHIPPED)
    if assets is None:
        raise FileNotFoundError(f"{SHIPPED} has no demo: make it with `loragate demo build --out {SHIPPED}`")
    return assets


def shipped_mismatch() -> str | None:
    """Return what to do if no demo is shipped, or one that another recipe made than this code's, else None."""
    shipped, recipe = read_assets(SHIPPED), Recipe().digest
    if shipped is None:
        return f"demo: the package ships no demo; to add one, run `loragate demo build --out {SHIPPED}`"
    if shipped.digest == recipe:
        return None
    return (
        f"demo: the shipped demo was made by another recipe ({shipped.digest[:16]}) than this code's ({recipe[:16]}). "
        "It is served. To ship a new one: remove demo/data, run `loragate demo build --out demo/data`, commit it"
    )


def read_assets(home: Path) -> DemoAssets | None:
    """Return the demo whose contents `home` lists, or None if it lists none."""
    try:
        contents = json.loads((home / _CONTENTS).read_bytes())
    except FileNotFoundError:
        return None
    return _assets(contents["recipe"], home, contents["tenants"])


def assets_in(home: Path, recipe: Recipe) -> DemoAssets:
    """Return where the parts of `recipe`'s demo are, or will be, in `home`."""
    names = {tenant.name: [adapter.style.name for adapter in tenant.adapters] for tenant in recipe.tenants}
    return _assets(recipe.digest, home, names)


def write_contents(assets: DemoAssets) -> None:
    """Write the list that `read_assets` reads."""
    tenants = {tenant.name: list(tenant.adapters) for tenant in assets.tenants}
    text = json.dumps({"recipe": assets.digest, "tenants": tenants}, indent=2)
    (assets.home / _CONTENTS).write_text(f"{text}\n", encoding="utf-8")


def _assets(digest: str, home: Path, names: Mapping[str, list[str]]) -> DemoAssets:
    tenants = tuple(
        DemoTenant(tenant, MappingProxyType({name: home / "adapters" / tenant / name for name in adapters}))
        for tenant, adapters in names.items()
    )
    return DemoAssets(digest, home, home / MODEL, tenants)
