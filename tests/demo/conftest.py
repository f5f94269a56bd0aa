"""A demo that trains in a fraction of a second, and the real one, which is shipped."""

import pytest

from loragate.demo import DemoAssets, shipped_assets
from loragate.demo.recipe import TENANTS, AdapterRecipe, BaseRecipe, Recipe, TenantRecipe


@pytest.fixture
def small_recipe() -> Recipe:
    base = BaseRecipe(
        hidden_size=32, intermediate_size=48, layers=2, heads=2, kv_heads=1, max_positions=1024, vocabulary=320,
        tokenizer_samples=80, copies=20, steps=3, tokens_per_batch=256, learning_rate=1e-3, rounds=1,
    )  # fmt: skip
    adapters = tuple(
        AdapterRecipe(adapter.style, rank=2, alpha=4, targets=("q_proj",), steps=2, tokens_per_batch=128, rounds=1)
        for adapter in TENANTS[0].adapters
    )
    return Recipe(base=base, tenants=(TenantRecipe("acme", adapters),))


@pytest.fixture(scope="session")
def demo() -> DemoAssets:
    """The demo that the package ships."""
    return shipped_assets()
