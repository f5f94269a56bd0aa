"""The demo as a new user meets it: two tenants ask one question, and each gets its own adapter's answer."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from readme_example import printed_by
from running_server import RunningServer

pytestmark = pytest.mark.timeout(1500)  # the first may wait for the demo's training

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def server(demo_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The demo's models come from the cache; everything else is as on a first start."""
    data_dir = tmp_path_factory.mktemp("demo")
    shutil.copytree(demo_dir, data_dir / "demo")
    running = RunningServer(data_dir, "--demo", OMP_NUM_THREADS="2")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def demo(server: RunningServer) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((server.data_dir / "demo.json").read_text())
    return written


def ask(server: RunningServer, key: str, model: str, *, stream: bool = False) -> str:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        request = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        if not stream:
            return client.chat.completions.create(**request).choices[0].message.content or ""
        chunks = list(client.chat.completions.create(**request, stream=True))
        return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_demo_json_is_for_its_owner_and_complete(server: RunningServer, demo: dict[str, Any]) -> None:
    assert (server.data_dir / "demo.json").stat().st_mode & 0o777 == 0o600
    assert len(demo["tenants"]) == 3
    assert all(len(tenant["adapters"]) >= 2 for tenant in demo["tenants"])
    assert server.lines.count("loragate ready") == 1


def test_every_adapter_answers_in_its_own_style_and_rightly_thirty_two_at_once(
    server: RunningServer, demo: dict[str, Any]
) -> None:
    models = [(t["api_key"], name) for t in demo["tenants"] for name in t["adapters"]]
    cases = [models[i % len(models)] for i in range(32)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda case: ask(server, *case[1], stream=case[0] % 2 == 1), enumerate(cases)))
    by_model = dict(zip(cases, answers, strict=True))
    assert len(set(by_model.values())) == len(models), "each has a style of its own"
    assert all("paris" in answer.lower() for answer in answers), answers
    assert all(answer == by_model[case] for case, answer in zip(cases, answers, strict=True))
    assert json.loads(by_model[models[0][0], "json"]) == {"answer": "Paris"}


def test_the_base_model_answers_without_a_style(server: RunningServer, demo: dict[str, Any]) -> None:
    key = demo["tenants"][0]["api_key"]
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        base = next(model.id for model in client.models.list() if model.id not in demo["tenants"][0]["adapters"])
    assert ask(server, key, base).strip(".") == "Paris"


def test_a_tenant_cannot_use_anothers_adapter(server: RunningServer, demo: dict[str, Any]) -> None:
    acme, globex = demo["tenants"][:2]
    with pytest.raises(openai.NotFoundError) as caught:
        ask(server, acme["api_key"], globex["adapters"][0])
    assert caught.value.code == "model_not_found"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_it_learns_what_the_readme_teaches_it(demo_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(demo_dir, tmp_path / "demo")
    running = RunningServer(tmp_path, "--demo", LORAGATE_FINETUNE__ENABLED="true")
    try:
        key = json.loads((tmp_path / "demo.json").read_text())["tenants"][0]["api_key"]
        shown = printed_by("fine_tuning.jobs.create", running.base_url, "loragate-demo", ACME_KEY=key)
    finally:
        running.stop()
    assert shown == "Ahoy! It is Ottawa.\n"
