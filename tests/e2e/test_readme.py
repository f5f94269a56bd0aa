"""The README's commands from a PEFT folder to a canary with a tenth of the traffic, and back, run as written."""

import shlex
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from readme_example import console_blocks
from running_server import clean_environment, client, ok

USERS = 300


def blocks() -> list[list[str]]:
    """Return our commands in each block that shows some, without their comments."""
    commands = [[line for line in block if line.startswith("loragate ")] for block in console_blocks()]
    return [[shlex.join(shlex.split(command, comments=True)) for command in block] for block in commands]


def shares(tenant: httpx.Client) -> Counter[str]:
    """Return how many of the users get each version."""

    def version(user: int) -> str:
        body = {"model": "support-bot", "prompt": [5, 9], "max_tokens": 1, "user": f"user-{user}"}
        answer = tenant.post("/v1/completions", json=body)
        ok(answer)
        return str(answer.headers["x-loragate-adapter"]).partition("@")[0]

    with ThreadPoolExecutor(16) as pool:
        return Counter(pool.map(version, range(USERS)))


def test_three_commands_from_a_folder_to_a_canary_and_back(server: Any, tiny: Any, tmp_path: Path) -> None:
    (first,) = [block for block in blocks() if "loragate adapters upload ./outputs/support-bot" in block]
    (commands,) = [block for block in blocks() if any("adapters canary" in command for command in block)]
    assert len(commands) == 3
    for adapter, name in (("a", "support-bot"), ("b", "checkpoint-800")):
        shutil.copytree(tiny.adapters[adapter], tmp_path / "outputs" / name)
    key = server.add_tenant("reader")
    environment = clean_environment() | {"LORAGATE_BASE_URL": server.base_url, "LORAGATE_API_KEY": key}

    def run(command: str) -> None:
        words = [sys.executable, "-m", "loragate.cli.main", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    run(next(command for command in first if command.startswith("loragate adapters upload")))
    with client(server.base_url, key) as tenant:
        upload, canary, rollback = commands
        run(upload)
        assert shares(tenant) == {"support-bot:1": USERS}
        run(canary)
        found = shares(tenant)
        assert found.keys() == {"support-bot:1", "support-bot:2"}
        assert 0.04 < found["support-bot:2"] / USERS < 0.18, found
        assert shares(tenant) == found, "who got a version keeps it"
        run(rollback)
        assert shares(tenant) == {"support-bot:1": USERS}
