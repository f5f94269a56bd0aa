"""The README's commands for a model and adapters of a hub, run as written against a stand-in hub: it has tiny models of
the same architecture under the names of the real ones."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from readme_example import console_blocks
from running_server import RunningServer, clean_environment
from tiny_models import add_adapter, make_model

from tests.e2e.conftest import save_tokenizer
from tests.gateway.fake_hub import FakeHub, fake_hub

VOCABULARY = 320


def shown() -> list[str]:
    """Return the commands of the README's block that begins with `loragate init`."""
    (block,) = [block for block in console_blocks() if any(line.startswith("loragate init ") for line in block)]
    return block


def offer(hub: FakeHub, commands: list[str], folder: Path) -> None:
    """Offer the model and the adapters that the commands name."""
    model = make_model("qwen3", vocab_size=VOCABULARY)
    model.save_pretrained(folder / "model")
    save_tokenizer(folder / "model", VOCABULARY)
    hub.offer(re.findall(r"--model (\S+/\S+)", commands[0])[0], folder / "model")
    adapters = re.findall(r"hf://(\S+)", " ".join(commands))
    assert len(adapters) == 2
    for seed, repository in enumerate(adapters):
        hub.offer(repository, add_adapter(model, folder / f"adapter-{seed}", seed, r=8))


@pytest.mark.long
async def test_a_model_and_adapters_of_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    initialize, serve, *rest = shown()
    assert shlex.split(serve, comments=True) == ["loragate", "serve"]
    monkeypatch.chdir(tmp_path)
    async with fake_hub() as hub:
        offer(hub, [initialize, *rest], tmp_path / "hub")
        of_hub = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "LORAGATE_IMPORTS__HUB": hub.url}

        def run(command: str) -> str:
            program = f'loragate() {{ {sys.executable} -m loragate.cli.main "$@"; }}; {command}'
            environment = clean_environment() | of_hub
            done = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            return done.stdout

        await asyncio.to_thread(run, initialize)
        server = await asyncio.to_thread(RunningServer, tmp_path / ".loragate", **of_hub)
        try:
            exports, *commands = rest
            for command in commands:
                await asyncio.to_thread(run, f"{exports}; {command}")
            listed = await asyncio.to_thread(run, f"{exports}; loragate adapters list")
            assert {line.split("\t")[0] for line in listed.splitlines()} == {"meow", "woof"}
        finally:
            await asyncio.to_thread(server.stop)
