"""Requests of litellm, langchain-openai and the `llm` program get the responses that these clients expect.

Each has its own environment with pinned versions, because they need other versions of our dependencies. Creating the
three takes minutes (litellm's alone has 340 MB), so they are kept, and the tests are marked long.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from skip_for_missing import skip_for_missing
from tokenizers import Tokenizer

from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.gateway_setup import stub_engine
from tests.gateway.running_gateway import Gateway
from tests.gateway.stub_engine import StubEngine

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CLIENTS = Path(__file__).parent / "clients"
HELLO, PLACE = "Hello yourself.", '{"city": "Oslo"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {PLACE}}}\n</tool_call>'


@pytest.fixture(scope="session")
def python_of(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Creates a client's Python environment, or finds the one of an earlier run."""
    cache = os.environ.get("LORAGATE_TEST_CACHE")
    root = (Path(cache) if cache else request.config.cache.mkdir("loragate")) / "clients"

    def python_of(client: str) -> Path:
        pins = CLIENTS / f"{client}.txt"
        key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:16]
        folder = root / f"{client}-{key}"
        made = folder / "complete"
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install = [folder / "bin" / "pip", "install", "--quiet", "--requirement", pins]
            done = subprocess.run(install, capture_output=True, text=True)
            if done.returncode:
                skip_for_missing(f"{client}'s packages: {done.stderr[-2000:]}")
            made.touch()
        return folder / "bin" / "python"

    return python_of


@pytest.fixture
async def engine(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    """Calls a tool if it gets one, returns a place where only JSON is allowed, and otherwise says hello."""

    def script(submit: pb.Submit) -> list[int]:
        tools = tokenizer.decode(list(submit.prompt_token_ids)).startswith("tools")
        said = PLACE if submit.HasField("grammar") else CALL if tools else HELLO
        return list(tokenizer.encode(said, add_special_tokens=False).ids)

    async with stub_engine(tokenizer, max_model_len=1024, chat_template=tiny_model.TOOLS_TEMPLATE) as stub:
        stub.script = script
        yield stub


async def asked(gateway: Gateway, python: Path, client: str) -> Any:
    program = await asyncio.create_subprocess_exec(
        str(python), str(CLIENTS / f"{client}.py"), f"{gateway.base_url}/v1", gateway.key, "poet",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    said, complaint = await program.communicate()
    assert program.returncode == 0, complaint.decode()[-4000:]
    return json.loads(said.decode().splitlines()[-1])


@pytest.mark.parametrize("client", ["litellm", "langchain"])
async def test_libraries(gateway: Gateway, upload: Any, python_of: Callable[[str], Path], client: str) -> None:
    await upload("poet")
    reported = await asked(gateway, await asyncio.to_thread(python_of, client), client)
    assert (reported["answer"], reported["streamed"]) == (HELLO, HELLO)
    assert reported["usage"] > 0
    assert reported["streamed_usage"] > 0
    assert reported["called"] == [["weather", {"city": "Oslo"}]]
    assert reported["place"] == {"city": "Oslo"}
    assert reported["vectors"] == [[pytest.approx(0.6), pytest.approx(-0.8)]] * 2
    assert "NotFound" in reported["rejected"]


async def test_the_llm_program(gateway: Gateway, upload: Any, python_of: Callable[[str], Path]) -> None:
    await upload("poet")
    reported = await asked(gateway, await asyncio.to_thread(python_of, "llm"), "llm")
    assert (reported["answer"], reported["streamed"], reported["place"]) == (HELLO, HELLO, {"city": "Oslo"})
    assert "nobodys" in reported["rejected"]
    assert "does not exist" in reported["rejected"]
