"""Builds the demo once; afterwards the same recipe costs nothing."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from loragate.demo.assets import DemoAssets, assets_in
from loragate.demo.atomic_folder import exclusive, published
from loragate.demo.progress import progress, quiet_libraries, say
from loragate.demo.recipe import AdapterRecipe, Recipe


def build(directory: Path, *, console: Console | None = None, recipe: Recipe | None = None) -> DemoAssets:
    """The demo's base model and adapters under `directory`, trained if they are not there yet.

    Base and adapters appear one by one and whole: an interrupted build goes on where it was. Two processes that
    build in one directory take turns, and the second finds the work done.
    """
    recipe, console = recipe or Recipe(), console or Console(stderr=True)
    assets = assets_in(directory, recipe)
    with exclusive(directory):
        if not _complete(assets):
            _build(recipe, assets, console)
    return assets


def _complete(assets: DemoAssets) -> bool:
    folders = [assets.model_dir, *(path for tenant in assets.tenants for path in tenant.adapters.values())]
    return all(folder.is_dir() for folder in folders)


def _build(recipe: Recipe, assets: DemoAssets, console: Console) -> None:
    started = time.monotonic()
    with quiet_libraries():
        _build_parts(recipe, assets, console)
    adapters = sum(len(tenant.adapters) for tenant in assets.tenants)
    say(console, f"demo: base model and {adapters} adapters in {time.monotonic() - started:.0f} s: {assets.home}")


def _build_parts(recipe: Recipe, assets: DemoAssets, console: Console) -> None:
    _build_base(recipe, assets.model_dir, console)
    folders = {tenant.name: tenant.adapters for tenant in assets.tenants}
    for tenant, adapter in recipe.adapters():
        title = f"demo: training adapter {tenant.name}/{adapter.style.name}"
        folder = folders[tenant.name][adapter.style.name]
        _build_adapter(adapter, recipe.seed, assets.model_dir, folder, title, console)


def _build_base(recipe: Recipe, directory: Path, console: Console) -> None:
    if directory.is_dir():
        return
    # torch and transformers take seconds to import: only a build that trains should wait for them.
    from loragate.demo.base_model import build_base

    with (
        progress(console, "demo: training base model", recipe.base.steps) as on_step,
        published(directory) as unfinished,
    ):
        build_base(recipe, unfinished, on_step)


def _build_adapter(
    adapter: AdapterRecipe, seed: int, model_dir: Path, directory: Path, title: str, console: Console
) -> None:
    if directory.is_dir():
        return
    from loragate.demo.adapters import build_adapter

    with progress(console, title, adapter.steps) as on_step, published(directory) as unfinished:
        build_adapter(adapter, seed, model_dir, unfinished, on_step)
