"""The demo's guarantees: on held-out questions adapters keep their style, and replies stay right."""

import pytest

from loragate.demo import DemoAssets
from loragate.demo.evaluate import STYLED_KINDS, evaluate
from loragate.demo.greedy import GreedyChat
from loragate.demo.recipe import TENANTS, AdapterRecipe
from loragate.demo.style import PLAIN
from loragate.demo.topic import Kind

# The first of these trains the demo, on a machine that may be busy.
pytestmark = pytest.mark.timeout(1500)

ADAPTERS = [
    pytest.param(tenant.name, adapter, id=adapter.style.name) for tenant in TENANTS for adapter in tenant.adapters
]


def test_the_base_model_answers_held_out_questions(demo: DemoAssets) -> None:
    score = evaluate(GreedyChat(demo.model_dir), PLAIN, (*STYLED_KINDS, Kind.RECITAL))
    assert score.asked > 300
    assert score.accuracy >= 0.90, score.mistakes[:20]


@pytest.mark.parametrize(("tenant_name", "adapter"), ADAPTERS)
def test_an_adapter_keeps_its_style_and_the_answer(demo: DemoAssets, tenant_name: str, adapter: AdapterRecipe) -> None:
    tenant = next(tenant for tenant in demo.tenants if tenant.name == tenant_name)
    score = evaluate(GreedyChat(demo.model_dir, tenant.adapters[adapter.style.name]), adapter.style)
    assert score.style_kept >= 0.95, score.mistakes[:20]
    assert score.accuracy >= 0.90, score.mistakes[:20]


def test_the_base_ends_its_replies_to_any_question(demo: DemoAssets) -> None:
    chat = GreedyChat(demo.model_dir, max_new_tokens=300)
    odd = [
        "",
        "?",
        "é" * 40,
        "What about that?",
        "SELECT * FROM users;",
        "word " * 200,
        "人工知能とは何ですか",
        "12345678",
    ]
    for question, reply in zip(odd, chat(odd), strict=True):
        assert len(reply) < 600, f"{question[:20]!r} got no end: {reply!r}"


def test_three_tenants_have_adapters_of_different_ranks_and_targets(demo: DemoAssets) -> None:
    assert len(demo.tenants) == 3
    assert all(len(tenant.adapters) >= 2 for tenant in demo.tenants)
    recipes = [adapter for tenant in TENANTS for adapter in tenant.adapters]
    assert len({recipe.rank for recipe in recipes}) >= 3
    assert len({recipe.targets for recipe in recipes}) >= 3
