"""The README, followed from top to bottom as written, and what its canary does to the traffic.

Only its address is another one, and a stand-in for the hub has tiny models of the same architecture under the names of
the real ones. tests/e2e/test_demo.py follows its first half where the long tests do not run.
"""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from page_reader import Reader
from readme_example import DOWNLOAD, OWN_SERVER, follow, make_checkout, readme, terminal
from running_server import RunningServer, clean_environment, client, ok
from tiny_models import add_adapter, make_model

from tests.e2e.conftest import save_tokenizer
from tests.gateway.fake_hub import FakeHub, fake_hub

USERS = 300
VOCABULARY = 320


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """A hub with the model and the adapters that the README names."""
    shown = "".join(block.text for block in readme(OWN_SERVER))
    model = make_model("qwen3", vocab_size=VOCABULARY)
    model.save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "model", VOCABULARY)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake_hub()) as offering:
        offering.offer(re.findall(r"--model (\w\S+/\S+)", shown)[0], tmp_path / "model")
        adapters = re.findall(r"hf://(\S+)", shown)
        assert len(adapters) == 2
        for seed, repository in enumerate(adapters):
            offering.offer(repository, add_adapter(model, tmp_path / f"adapter-{seed}", seed, r=8))
        yield offering


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """A reader for whom `make serve` has started the demo."""
    checkout = make_checkout(tmp_path / "checkout")
    enabled = {"LORAGATE_FINETUNE__ENABLED": "true", "LORAGATE_PANEL__ENABLED": "true"}
    demo = RunningServer(tmp_path / "demo", "--demo", **enabled)
    monkeypatch.chdir(checkout)
    reader = Reader(checkout, demo, terminal(checkout), {}, whole_programs=True)
    yield reader
    reader.stop()
    demo.stop()


def signs_in(panel: str, key: str) -> bool:
    """Return whether the panel accepts a key."""
    return httpx.post(f"{panel}/sign-in", data={"key": key}, headers={"origin": panel}).status_code == 303


@pytest.mark.long
@pytest.mark.timeout(900)
def test_from_nothing_to_the_panel(reader: Reader) -> None:
    follow(reader, readme(end=OWN_SERVER))
    panel = reader.server.runtime["panel_url"]
    assert signs_in(panel, reader.environment["ACME_KEY"])
    assert signs_in(panel, reader.environment["ADMIN_KEY"])
    assert not signs_in(panel, "lg-no-such-key")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_server_of_ones_own_with_a_hub_and_without(
    reader: Reader, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_hub = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "LORAGATE_IMPORTS__HUB": hub.url}
    reader.environment |= of_hub
    download, offline = readme(DOWNLOAD)
    follow(reader, readme(OWN_SERVER, DOWNLOAD))
    first_tenant = "LORAGATE_API_KEY=$(cat .loragate/first-tenant.key)"
    listed = reader.run_command(f"{first_tenant} loragate adapters list", [])
    assert {line.split("\t")[0] for line in listed.splitlines()} == {"meow", "woof"}
    reader.run(download)
    hub.replies.clear()
    asked = len(hub.asked)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    reader.environment["HF_HOME"] = str(tmp_path / "empty")
    reader.run(offline)
    assert len(hub.asked) == asked


@pytest.mark.long
def test_a_terminal_shows_stages_then_the_addresses_and_the_key(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loragate.cli.main", "serve", "--demo", "--data-dir", str(tmp_path / "data")]
    ports = [word for name in ("--port", "--grpc-port", "--panel-port") for word in (name, "0")]
    outer, inner = pty.openpty()
    process = subprocess.Popen([*command, *ports], env=clean_environment(), stdout=inner, stderr=inner)
    os.close(inner)
    lines: list[str] = []
    with open(outer, encoding="utf-8") as terminal:
        while "loragate ready" not in lines:
            lines.append(terminal.readline().rstrip())
        process.terminate()
        assert process.wait(60) == 0
    first = next(number for number, line in enumerate(lines) if not line.startswith("==> "))
    assert 3 <= first <= 6
    assert lines[first].split()[0] == "REST"
    assert lines[-2].startswith("admin key, shown only once: lg-admin-")
    assert not [line for line in lines if "INFO" in line or "waiting" in line or "not connected" in line]


def commands(word: str) -> list[str]:
    """Return our commands, without comments, in the only block with this word."""
    (block,) = (block for block in readme() if block.language == "console" and word in block.text)
    typed = [shlex.split(command, comments=True) for command, _ in block.commands]
    return [shlex.join(words) for words in typed if words[0] == "loragate"]


def shares(tenant: httpx.Client) -> Counter[str]:
    """Return how many of the users get each version."""

    def version(user: int) -> str:
        body = {"model": "support", "prompt": [5, 9], "max_tokens": 1, "user": f"user-{user}"}
        answer = tenant.post("/v1/completions", json=body)
        ok(answer)
        return str(answer.headers["x-loragate-adapter"]).partition("@")[0]

    with ThreadPoolExecutor(16) as pool:
        return Counter(pool.map(version, range(USERS)))


@pytest.mark.long  # a faster test does the same with the demo: `test_demo.py`
def test_three_commands_from_a_folder_to_a_canary_and_back(server: Any, tiny: Any, tmp_path: Path) -> None:
    (first,) = (command for command in commands("tenants create") if "adapters upload" in command)
    canary_and_back = commands("adapters canary")
    assert len(canary_and_back) == 3
    for adapter, command in (("a", first), ("b", canary_and_back[0])):
        shutil.copytree(tiny.adapters[adapter], tmp_path / shlex.split(command)[3])
    key = server.add_tenant("reader")
    environment = clean_environment() | {"LORAGATE_BASE_URL": server.base_url, "LORAGATE_API_KEY": key}

    def run(command: str) -> None:
        words = [sys.executable, "-m", "loragate.cli.main", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    run(first)
    with client(server.base_url, key) as tenant:
        upload, canary, rollback = canary_and_back
        run(upload)
        assert shares(tenant) == {"support:1": USERS}
        run(canary)
        found = shares(tenant)
        assert found.keys() == {"support:1", "support:2"}
        assert 0.04 < found["support:2"] / USERS < 0.18, found
        assert shares(tenant) == found, "who got a version keeps it"
        run(rollback)
        assert shares(tenant) == {"support:1": USERS}
