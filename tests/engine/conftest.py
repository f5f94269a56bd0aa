"""A tiny Llama with four adapters on disk, shared by the tests of the engine's parts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_models import add_adapter, make_model
from transformers import PreTrainedModel

from loragate.engine.local import LocalEngine

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Tiny:
    """A transformers model, its folder, and its adapters' folders by name."""

    model: PreTrainedModel
    base: Path
    adapters: dict[str, Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    root = tmp_path_factory.mktemp("tiny")
    model = make_model("llama")
    model.save_pretrained(root / "base")
    adapters = {name: add_adapter(model, root / name, seed, r=4) for seed, name in enumerate(NAMES)}
    return Tiny(model, root / "base", adapters)


@pytest.fixture
def start(tiny: Tiny, tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    """Starts engines on the tiny model: start(adapters=…, **EngineConfig fields)."""
    engines = []

    def start(adapters: dict[str, Path] | None = None, **config: Any) -> LocalEngine:
        settings = {"threads": 1, "block_size": 8, "kv_cache_tokens": 2048} | config
        engines.append(LocalEngine(tiny.base, tmp_path / "cache", adapters or tiny.adapters, **settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
