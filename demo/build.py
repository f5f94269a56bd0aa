"""Builds the demo once; building the same recipe again is free."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from loragate.demo.assets import DemoAssets, assets_in, read_assets, write_contents
from loragate.demo.atomic_folder import atomic_folder, exclusive_lock
from loragate.demo.progress import quiet_libraries, report
from loragate.demo.recipe import AdapterRecipe, Recipe


class BuildError(Exception):
    """The folder cannot be built in; the message says what to do."""


def build(home: Path, *, console: Console | None = None, recipe: Recipe | None = None) -> DemoAssets:
    """Return the demo's base model and adapters in `home`, after training those that are missing.

    The base model and each adapter appear whole or not at all: an interrupted build resumes at the first missing one.
    Of two processes that build in one folder, the second waits and finds the work done. Raise BuildError if the folder
    has the demo of another recipe.
    """
    recipe, console = recipe or Recipe(), console or Console(stderr=True)
    assets = assets_in(home, recipe)
    with exclusive_lock(home):
        present = read_assets(home)
        if present is not None and present.digest != assets.digest:
            raise BuildError(f"{home} has the demo of another recipe: remove it, or choose another folder")
        if not _complete(assets):
            write_contents(assets)
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
    report(console, f"demo: base model and {adapters} adapters in {time.monotonic() - started:.0f} s: {assets.home}")


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
    # torch and transformers take seconds to import: only builds that train should wait for them.
    from loragate.demo.base_model import build_base

    with atomic_folder(directory) as unfinished:
        build_base(recipe, unfinished, console)


def _build_adapter(
    adapter: AdapterRecipe, seed: int, model_dir: Path, directory: Path, title: str, console: Console
) -> None:
    if directory.is_dir():
        return
    from loragate.demo.adapters import build_adapter

    with atomic_folder(directory) as unfinished:
        build_adapter(adapter, seed, model_dir, unfinished, title, console)
