"""Adapters on experts and routers: greedy output equals PEFT's token for token in any batch."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from moe_adapters import ADAPTERS, add_old_layout
from thinned import thinned
from tiny_models import VOCABULARY, add_adapter, greedy, make_model
from transformers import PreTrainedModel

from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode
from loragate.peft_format.kinds import AdapterKind

# PEFT warns of patterns for parameters too, but applies them.
pytestmark = pytest.mark.filterwarnings("ignore:The following .*_pattern keys did not match:RuntimeWarning")

STD = 0.2  # of an adapter's factors: experts are small, and an adapter that changes no token would test nothing
NEW_TOKENS = 10
LENGTHS = (1, 2, 300, 33, 90, 7, 64, 18, 120, 5, 41, 11, 77, 26)


@dataclass
class Case:
    """A mixture, its adapters, an engine with fewer slots than adapters, and PEFT's outputs."""

    model: PreTrainedModel
    adapters: dict[str, Path]
    engine: LocalEngine
    answers: dict[tuple[int, str | None], list[int]] = field(default_factory=dict)

    def prompt(self, index: int) -> list[int]:
        rng = random.Random(index)
        return [rng.randrange(VOCABULARY) for _ in range(LENGTHS[index])]

    def answer(self, index: int, name: str | None, draft: Sequence[int] = ()) -> list[int]:
        if (index, name) not in self.answers:
            path = None if name is None else self.adapters[name]
            self.answers[index, name] = greedy(self.model, self.prompt(index), NEW_TOKENS, path, draft)
        return self.answers[index, name]

    def check(self, requests: list[tuple[int, str | None]]) -> None:
        """Run the requests at once; each is a prompt's index and an adapter."""
        ids = [self.engine.submit(self.prompt(index), name, max_tokens=NEW_TOKENS) for index, name in requests]
        for request_id, (index, name) in zip(ids, requests, strict=True):
            self.engine.result(request_id)
            found = self.engine.tokens(request_id)
            assert found == self.answer(index, name, found), (index, name)


@pytest.fixture(scope="module", params=thinned(["mixtral", "qwen3_moe", "gpt_oss"], fast={"mixtral", "gpt_oss"}))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    root = tmp_path_factory.mktemp(request.param)
    model = make_model(request.param)
    model.save_pretrained(root / "base")
    adapters = {
        name: add_adapter(model, root / name, seed, std=STD, **options(model))
        for seed, (name, options) in enumerate(ADAPTERS.items())
    }
    broken = add_adapter(model, root / "broken", 9, std=1e18, **ADAPTERS["experts"](model))
    if request.param != "gpt_oss":  # the only one of them that never had a linear for each expert
        adapters["old layout"] = add_old_layout(model, root / "old", seed=20, rank=4)
    engine = LocalEngine(
        root / "base",
        root / "cache",
        adapters | {"broken": broken},
        threads=1,
        adapter_slots=3,
        max_batch_tokens=48,
        max_batch_size=6,
        block_size=8,
        kv_cache_tokens=400,
    )
    yield Case(model, adapters, engine)
    engine.close()


ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "forward": lambda indices: indices,
    "backward": lambda indices: indices[::-1],
    "shuffled": lambda indices: random.Random(3).sample(indices, len(indices)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_mixed_batch_equals_peft(case: Case, order: str) -> None:
    names = [None, *case.adapters]
    evictions = case.engine.core.adapters.counters.evictions
    case.check([(i, names[i % len(names)]) for i in ORDERS[order](list(range(len(LENGTHS))))])
    assert case.engine.core.adapters.counters.evictions > evictions, "more adapters than slots were to page"


def test_each_adapter_alone_equals_peft(case: Case) -> None:
    for name in case.adapters:
        case.check([(3, name), (5, name), (4, name)])
        assert any(case.answer(i, name) != case.answer(i, None) for i in (3, 4, 5)), f"{name} changes nothing"


def test_adapters_on_different_parameters_share_a_batch(case: Case) -> None:
    """PEFT cannot hold these in one model: each targets parameters that the others do not change."""
    case.check([(i, name) for i, name in enumerate(["up", "down", None, "router", "up", "down"], start=5)])


def test_an_adapter_that_overflows_in_the_experts_fails_alone(case: Case) -> None:
    requests = [(3, "experts"), (4, "broken"), (5, None), (6, "broken"), (7, "up")]
    ids = [case.engine.submit(case.prompt(i), name, max_tokens=NEW_TOKENS) for i, name in requests]
    for request_id, (index, name) in zip(ids, requests, strict=True):
        outputs = case.engine.result(request_id)
        if name == "broken":
            assert outputs[-1].error is not None
            assert outputs[-1].error[0] is ErrorCode.NON_FINITE
        else:
            assert case.engine.tokens(request_id) == case.answer(index, name)


def test_the_manifest_names_what_can_be_targeted(case: Case) -> None:
    manifest = case.engine.loaded.manifest
    assert AdapterKind.PARAMETERS in manifest.adapter_kinds
    layer = {p.module.split("layers.1.")[1] + "." + p.name: p for p in manifest.parameters if ".layers.1." in p.module}
    router = "router" if case.model.config.model_type == "gpt_oss" else "gate"
    served = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj", f"mlp.{router}.weight"}
    assert {name for name, parameter in layer.items() if parameter.servable} == served
    assert all(p.transposed == (router == "router") for n, p in layer.items() if "experts" in n)
