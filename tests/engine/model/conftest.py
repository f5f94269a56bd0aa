"""A tiny base model with adapters, and engines on it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tiny_models import add_adapter, make_model

from loragate.engine.local import LocalEngine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model wide enough to be quantized in blocks of 64, and adapters, one of which reads its weights (DoRA)."""
    root = tmp_path_factory.mktemp("formats")
    model = make_model("llama", hidden_size=64, intermediate_size=128)
    model.save_pretrained(root / "base")
    add_adapter(model, root / "r4", 1, r=4)
    add_adapter(model, root / "r64", 2, r=64)
    add_adapter(model, root / "dora", 3, r=8, use_dora=True)
    return root


@pytest.fixture
def adapters(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in ("r4", "r64", "dora")}


@pytest.fixture
def start(adapters: Mapping[str, Path], tmp_path: Path) -> Iterator[Callable[..., LocalEngine]]:
    """Start an engine on a folder, with fields of EngineConfig; by default with these adapters."""
    engines = []

    def start(base: Path, adapters: Mapping[str, Path] = adapters, **config: object) -> LocalEngine:
        settings = {"threads": 1, "block_size": 8, "kv_cache_tokens": 1024} | config
        engines.append(LocalEngine(base, tmp_path / "cache", adapters, **settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
