"""Engines whose models have a tokenizer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import byte_level, sentencepiece_like
from worded import Worded


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worded")


@pytest.fixture(scope="module", params=[byte_level, sentencepiece_like])
def worded(request: pytest.FixtureRequest, root: Path) -> Iterator[Worded]:
    made = Worded(root / request.param.__name__, request.param())
    yield made
    made.engine.close()


@pytest.fixture
def fresh(root: Path) -> Iterator[Callable[..., Worded]]:
    """Starts engines for one test: fresh(**EngineConfig fields)."""
    made = []

    def start(**config: Any) -> Worded:
        made.append(Worded(root / "byte_level", byte_level(), **config))
        return made[-1]

    yield start
    for one in made:
        one.engine.close()
