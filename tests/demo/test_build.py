"""Building: deterministic, done once, complete, and resumable after an interruption."""

import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors import safe_open
from transformers import GenerationConfig

from loragate.demo import BuildError, DemoAssets, adapters, base_model, build
from loragate.demo.assets import read_assets
from loragate.demo.evaluate import Score
from loragate.demo.recipe import Recipe, TenantRecipe


def plain() -> Console:
    return Console(file=io.StringIO(), width=40)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def contents(assets: DemoAssets) -> dict[str, bytes]:
    return {str(path.relative_to(assets.home)): path.read_bytes() for path in assets.home.rglob("*") if path.is_file()}


def test_the_same_recipe_gives_the_same_bytes(small_recipe: Recipe, tmp_path: Path) -> None:
    first, second = (build(tmp_path / name, console=plain(), recipe=small_recipe) for name in "ab")
    assert contents(first) == contents(second)
    other = build(tmp_path / "c", console=plain(), recipe=replace(small_recipe, seed=21))
    assert other.digest != first.digest
    weights = f"{first.model_dir.name}/model.safetensors"
    assert contents(other)[weights] != contents(first)[weights]


def test_a_build_has_the_files_that_other_programs_expect(small_recipe: Recipe, tmp_path: Path) -> None:
    assets = build(tmp_path, console=plain(), recipe=small_recipe)
    config = json.loads((assets.model_dir / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == 1024
    generation = GenerationConfig.from_pretrained(assets.model_dir)
    assert generation.eos_token_id == config["eos_token_id"] == 4
    with safe_open(assets.model_dir / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118
    assert config["dtype"] == "float32", "computed in float32 nevertheless"
    for name, directory in assets.tenants[0].adapters.items():
        assert {path.name for path in directory.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}, name
        assert str(tmp_path) not in (directory / "adapter_config.json").read_text()


def test_a_folder_with_the_demo_of_another_recipe_is_left_alone(small_recipe: Recipe, tmp_path: Path) -> None:
    assets = build(tmp_path, console=plain(), recipe=small_recipe)
    before = contents(assets)
    with pytest.raises(BuildError, match="another recipe"):
        build(tmp_path, console=plain(), recipe=replace(small_recipe, seed=21))
    assert contents(assets) == before
    assert read_assets(tmp_path) == assets


def test_the_second_build_trains_nothing(small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path, console=plain(), recipe=small_recipe)
    for module in (base_model, adapters):
        monkeypatch.setattr(module, "fit", None)
    console = plain()
    assert build(tmp_path, console=console, recipe=small_recipe) == first
    assert text(console) == ""


def test_an_interrupted_build_resumes_where_it_was(
    small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    train = adapters.fit

    def interrupted(*args: Any) -> None:
        trained.append("interrupted")
        if len(trained) == 2:
            raise KeyboardInterrupt
        train(*args)

    monkeypatch.setattr(adapters, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, console=plain(), recipe=small_recipe)
    kept = {path.name for path in tmp_path.rglob("*") if path.is_dir()}
    assert {"loragate-demo", "json"} <= kept
    assert not {name for name in kept if "shouting" in name or "unfinished" in name}

    monkeypatch.setattr(base_model, "fit", None)
    console = plain()
    resumed = build(tmp_path, console=console, recipe=small_recipe)
    assert len(trained) == 3, "only the adapter that was interrupted"
    assert "json:" not in text(console)
    monkeypatch.undo()
    assert contents(resumed) == contents(build(tmp_path / "afresh", console=plain(), recipe=small_recipe))


@pytest.mark.parametrize(("shares", "rounds"), [((0.5, 0.99, 0.2), 2), ((0.5, 0.6, 0.7), 3)])
def test_the_base_model_is_trained_until_it_passes_the_validation(
    small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...], rounds: int
) -> None:
    left = iter(shares)
    monkeypatch.setattr(base_model, "exact_share", lambda *_: next(left))
    console = plain()
    recipe = replace(small_recipe, base=replace(small_recipe.base, rounds=3), tenants=())
    build(tmp_path, console=console, recipe=recipe)
    assert text(console).count(": in validation ") == rounds


def test_an_adapter_is_trained_until_it_passes_the_validation(
    small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _rounds(small_recipe, tmp_path / "passes", monkeypatch, [0.5, 0.99, 0.2]) == 2
    assert _rounds(small_recipe, tmp_path / "is-not-right", monkeypatch, [0.5, 0.6, 0.7]) == 3


def test_an_adapter_has_the_weights_of_its_best_round(
    small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _rounds(small_recipe, tmp_path / "first", monkeypatch, [0.99])
    _rounds(small_recipe, tmp_path / "second", monkeypatch, [0.1, 0.99])
    _rounds(small_recipe, tmp_path / "best", monkeypatch, [0.1, 0.7, 0.6])

    def weights(name: str) -> bytes:
        (file,) = (tmp_path / name).rglob("json/adapter_model.safetensors")
        return file.read_bytes()

    assert weights("best") == weights("second") != weights("first")


def _rounds(recipe: Recipe, directory: Path, monkeypatch: pytest.MonkeyPatch, shares: list[float]) -> int:
    """Build one adapter of at most three rounds that have `shares` in style and correct; return its rounds."""
    left = iter(shares)

    def score(*_: Any, **__: Any) -> Score:
        share = round(1000 * next(left))
        return Score(asked=1000, styled=share, right=share, mistakes=())

    monkeypatch.setattr(adapters, "evaluate", score)
    adapter = replace(recipe.tenants[0].adapters[0], steps=4, rounds=3)
    console = plain()
    build(directory, console=console, recipe=replace(recipe, tenants=(TenantRecipe("acme", (adapter,)),)))
    return text(console).count(": in validation ")


def test_leftovers_of_a_killed_build_are_removed(small_recipe: Recipe, tmp_path: Path) -> None:
    left = tmp_path / "demo" / "loragate-demo.unfinished"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    assets = build(tmp_path / "demo", console=plain(), recipe=small_recipe)
    assert not left.exists()
    assert (assets.model_dir / "model.safetensors").stat().st_size > 1000


def test_two_concurrent_builds_train_once(
    small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    train = base_model.fit

    def counted(*args: Any) -> None:
        calls.append(1)
        train(*args)

    monkeypatch.setattr(base_model, "fit", counted)
    builds = [
        threading.Thread(target=build, args=(tmp_path,), kwargs={"console": plain(), "recipe": small_recipe})
        for _ in range(2)
    ]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()
    assert len(calls) == 1


def test_a_log_gets_complete_lines_and_the_demos_path(small_recipe: Recipe, tmp_path: Path) -> None:
    console = plain()
    assets = build(tmp_path, console=console, recipe=small_recipe)
    lines = text(console).splitlines()
    assert lines[0] == "demo: training base model: 3 steps"
    assert lines[-1].startswith("demo: base model and 2 adapters in ")
    assert lines[-1].endswith(str(assets.home))
    assert all(line.startswith("demo: ") for line in lines)
    assert "\x1b" not in text(console)


def test_a_terminal_gets_a_bar(small_recipe: Recipe, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    build(tmp_path, console=console, recipe=small_recipe)
    assert "3/3" in text(console)
    assert "loss" in text(console)
