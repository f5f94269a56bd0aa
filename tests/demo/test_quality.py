"""The demo's guarantees: on held-out questions adapters keep their style, replies stay right, tools are used rightly.

The shipped demo answers a part of the questions here; a demo that is built from the recipe answers all of them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open
from thinned import thinned

from loragate.demo import DemoAssets, build
from loragate.demo.evaluate import STYLED_KINDS, evaluate
from loragate.demo.facts.knowledge import topics
from loragate.demo.greedy import GreedyChat
from loragate.demo.phrasing import held_out_questions
from loragate.demo.recipe import TENANTS, AdapterRecipe, Recipe
from loragate.demo.style import PLAIN
from loragate.demo.tool_use.evaluate import answers, calls, evaluate_tools
from loragate.demo.topic import Kind, Topic

Questions = Callable[[Topic], tuple[str, ...]]

FAST = ("json", "polite", "thinking")  # of the shipped adapters' styles
ADAPTERS = [
    pytest.param(
        tenant.name, adapter, id=adapter.style.name, marks=() if adapter.style.name in FAST else pytest.mark.long
    )
    for tenant in TENANTS
    for adapter in tenant.adapters
]
ORDER = {topic: number for number, topic in enumerate(topic for group in topics().values() for topic in group)}


def one_question(topic: Topic) -> tuple[str, ...]:
    """Return one of the topic's held-out questions; which one differs between topics."""
    questions = held_out_questions(topic)
    return (questions[ORDER[topic] % len(questions)],)


def two_questions(topic: Topic) -> tuple[str, ...]:
    """Return two of the topic's held-out questions; which ones differs between topics."""
    questions = held_out_questions(topic)
    start = ORDER[topic] % len(questions)
    return (questions * 2)[start : start + 2] if len(questions) > 1 else questions


EACH = [(one_question, 75), pytest.param(two_questions, 150, marks=pytest.mark.long)]


def check_base(demo: DemoAssets, questions: Questions, least: int) -> None:
    score = evaluate(GreedyChat(demo.model_dir), PLAIN, (*STYLED_KINDS, Kind.RECITAL), questions)
    assert score.asked > least
    assert score.accuracy >= 0.90, score.mistakes[:20]


def check_tools(demo: DemoAssets, count: int) -> None:
    chat = GreedyChat(demo.model_dir).in_chats
    for cases in (calls(count), answers(count // 2)):
        score = evaluate_tools(chat, cases)
        assert score.accuracy >= 0.90, score.mistakes[:20]


def check_adapter(demo: DemoAssets, tenant_name: str, adapter: AdapterRecipe, questions: Questions, least: int) -> None:
    tenant = next(tenant for tenant in demo.tenants if tenant.name == tenant_name)
    chat = GreedyChat(demo.model_dir, tenant.adapters[adapter.style.name])
    score = evaluate(chat, adapter.style, questions=questions)
    assert score.asked > least
    assert score.style_kept >= 0.95, score.mistakes[:20]
    assert score.accuracy >= 0.90, score.mistakes[:20]


def test_the_shipped_demo_is_that_of_the_recipe(demo: DemoAssets) -> None:
    assert demo.digest == Recipe().digest, "build it again: see CONTRIBUTING.md"
    assert [(tenant.name, list(tenant.adapters)) for tenant in demo.tenants] == [
        (tenant.name, [adapter.style.name for adapter in tenant.adapters]) for tenant in TENANTS
    ]


def test_the_shipped_demo_is_small(demo: DemoAssets) -> None:
    files = [path for path in demo.home.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 16e6
    for file in demo.home.rglob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}, file  # noqa: SIM118


@pytest.mark.parametrize(("questions", "least"), EACH)
def test_the_base_model_answers_held_out_questions(demo: DemoAssets, questions: Questions, least: int) -> None:
    check_base(demo, questions, least)


@pytest.mark.parametrize("count", thinned([48, 96], fast={48}))
def test_the_base_model_uses_tools_rightly(demo: DemoAssets, count: int) -> None:
    check_tools(demo, count)


@pytest.mark.parametrize(("questions", "least"), EACH)
@pytest.mark.parametrize(("tenant_name", "adapter"), ADAPTERS)
def test_an_adapter_keeps_its_style_and_the_answer(
    demo: DemoAssets, tenant_name: str, adapter: AdapterRecipe, questions: Questions, least: int
) -> None:
    check_adapter(demo, tenant_name, adapter, questions, least - 20)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_a_demo_built_from_the_recipe_is_as_good(tmp_path: Path) -> None:
    built = build(tmp_path)
    check_base(built, held_out_questions, least=300)
    check_tools(built, 400)
    for tenant in TENANTS:
        for adapter in tenant.adapters:
            check_adapter(built, tenant.name, adapter, held_out_questions, least=250)


@pytest.mark.long
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
