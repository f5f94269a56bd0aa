"""The whole supervisor in its own process, with lightweight fakes of engine and gateway."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

FAKES = Path(__file__).parent / "fakes"
_USUAL = {
    "LORAGATE_MODEL": "any",
    "LORAGATE_PORT": "0",
    "LORAGATE_GRPC_PORT": "0",
    "LORAGATE_PANEL_PORT": "0",
    "LORAGATE_PANEL__ENABLED": "false",
}


class Server:
    """A supervisor that runs in the test's folder."""

    def __init__(self, *, engine_status: int = 0, **settings: str) -> None:
        named = {f"LORAGATE_{name.upper()}": value for name, value in settings.items()}
        with Path("stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(FAKES / "serve.py"), str(engine_status)],
                env={**os.environ, **_USUAL, **named},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.lines: list[str] = []

    def until_ready(self) -> "Server":
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line == "loragate ready\n":
                return self
        pytest.fail(f"ended with {self.process.wait()}: {Path('stderr').read_text()}")

    @property
    def runtime(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(Path(".loragate/runtime.json").read_text())
        return content

    @property
    def children(self) -> list[int]:
        pids = self.runtime["pids"]
        return [pids["engine"], *pids["gateway"]]

    def ends(self) -> int:
        assert self.process.stdout
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="lg-") as short:  # sockets are in the temporary folder
        monkeypatch.setenv("TMPDIR", short)

        def start(**options: Any) -> Server:
            servers.append(Server(**options))
            return servers[-1]

        yield start
        for server in servers:
            server.process.kill()
            server.process.communicate()


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def events() -> list[str]:
    return Path("events").read_text().splitlines() if Path("events").exists() else []


def test_ready_is_printed_once_and_the_runtime_file_is_complete(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    file = Path(".loragate/runtime.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    runtime = server.runtime
    host, _, port = runtime["grpc_target"].rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert runtime["panel_url"] is None
    pids = runtime["pids"]
    assert pids["supervisor"] == server.process.pid
    assert (pids["finetune"], pids["panel"], len(pids["gateway"])) == (None, None, 1)
    assert all(is_running(pid) for pid in server.children)
    assert all(os.getpgid(pid) == pid for pid in server.children), "Ctrl-C must not reach the children"
    assert {os.getsid(pid) for pid in server.children} == {os.getsid(0)}, "or being nice counts for nothing"
    assert httpx.get(runtime["base_url"] + "/readyz", trust_env=False, timeout=60).status_code == 200

    server.process.terminate()
    assert server.ends() == 0
    assert server.lines.count("loragate ready") == 1
    assert not file.exists()


def test_the_admin_key_is_printed_at_the_first_start_only(start: Callable[..., Server]) -> None:
    keys = []
    for _ in range(2):
        server = start().until_ready()
        server.process.terminate()
        assert server.ends() == 0
        keys.append([line for line in server.lines if "admin key" in line])
    assert len(keys[0]) == 1
    assert "lg-admin-" in keys[0][0]
    assert keys[1] == []
    assert "lg-admin-" not in Path("stderr").read_text()


def test_a_given_admin_key_is_not_printed(start: Callable[..., Server]) -> None:
    server = start(admin_key="given-by-the-operator-0001").until_ready()
    server.process.terminate()
    server.ends()
    assert server.lines == ["loragate ready"]


def test_the_gateway_drains_before_the_engine_stops(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    children = server.children
    server.process.terminate()
    assert server.ends() == 0
    assert events() == ["gateway drains", "gateway stops", "engine stops"]
    assert not any(is_running(pid) for pid in children)


def test_a_signal_that_arrives_twice_counts_once(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    server.process.terminate()
    server.process.send_signal(signal.SIGINT)
    assert server.ends() == 0
    assert events() == ["gateway drains", "gateway stops", "engine stops"]


def test_a_second_signal_stops_at_once(start: Callable[..., Server]) -> None:
    server = start(drain_seconds="3600").until_ready()
    children = server.children
    Path("stubborn").touch()
    server.process.terminate()
    wait_until(lambda: events() == ["gateway drains"])
    while server.process.poll() is None:
        server.process.terminate()
        time.sleep(0.1)
    assert server.ends() == 1
    assert not any(is_running(pid) for pid in children)
    assert not Path(".loragate/runtime.json").exists()


def test_a_killed_engine_is_restarted_and_the_gateway_stays(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    before = server.runtime["pids"]
    os.kill(before["engine"], signal.SIGKILL)
    wait_until(lambda: server.runtime["pids"]["engine"] != before["engine"])
    after = server.runtime["pids"]
    assert is_running(after["engine"])
    assert after["gateway"] == before["gateway"]
    server.process.terminate()
    assert server.ends() == 0
    assert server.lines.count("loragate ready") == 1


def test_a_failed_optional_part_is_reported_and_blocks_nothing(start: Callable[..., Server]) -> None:
    server = start(finetune__threads="1").until_ready()
    first = server.runtime["pids"]["finetune"]
    assert server.runtime["optional"] == {"finetune": "is starting"}
    Path("works").touch()
    wait_until(lambda: server.runtime["optional"] == {"finetune": None})
    Path("works").unlink()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: server.runtime["pids"]["finetune"] != first)
    assert server.runtime["optional"]["finetune"]
    second = server.runtime["pids"]["finetune"]
    server.process.terminate()
    assert server.ends() == 0
    assert not is_running(second)


def test_an_optional_part_may_fail_to_start(start: Callable[..., Server]) -> None:
    Path("unfit").touch()
    server = start(finetune__threads="1").until_ready()
    wait_until(lambda: server.runtime["optional"] == {"finetune": "failed to start"})
    assert server.runtime["pids"]["finetune"] is None
    server.process.terminate()
    assert server.ends() == 0
    assert "the worker failed to start; see the message above; continuing without it" in Path("stderr").read_text()


def test_several_gateways_share_the_port(start: Callable[..., Server]) -> None:
    server = start(workers="2", redis_url="redis://127.0.0.1:9").until_ready()
    gateways = server.runtime["pids"]["gateway"]
    assert len(set(gateways)) == 2
    os.kill(gateways[0], signal.SIGKILL)
    assert httpx.get(server.runtime["base_url"] + "/readyz", trust_env=False, timeout=60).status_code == 200
    server.process.terminate()
    assert server.ends() == 0
    assert "gateway stops" in events()


def test_the_port_survives_a_killed_gateway(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    before = server.runtime
    os.kill(before["pids"]["gateway"][0], signal.SIGKILL)
    wait_until(lambda: server.runtime["pids"]["gateway"] != before["pids"]["gateway"])
    assert server.runtime["base_url"] == before["base_url"]
    # No retry: the listener never closed, so the call waits for the new gateway.
    assert httpx.get(before["base_url"] + "/readyz", trust_env=False, timeout=60).status_code == 200


def test_the_grpc_port_is_held_from_the_start_and_unavailable_to_others(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    port = server.runtime["grpc_target"].rpartition(":")[2]
    second = start(grpc_port=port, data_dir="elsewhere")
    assert second.ends() == 1
    assert f"port {port} on 127.0.0.1 is in use: choose another one with --grpc-port" in Path("stderr").read_text()
    gateways = server.runtime["pids"]["gateway"]
    os.kill(gateways[0], signal.SIGKILL)
    wait_until(lambda: server.runtime["pids"]["gateway"] != gateways)
    assert server.runtime["grpc_target"].endswith(f":{port}")


def test_children_die_with_a_killed_supervisor(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    children = server.children
    os.kill(children[0], signal.SIGSTOP)
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not any(is_running(pid) for pid in children))


def test_a_killed_supervisor_leaves_a_usable_directory(start: Callable[..., Server]) -> None:
    first = start().until_ready()
    old = first.children
    first.process.kill()
    first.process.wait()
    second = start().until_ready()
    assert not set(second.children) & set(old)
    second.process.terminate()
    assert second.ends() == 0


def test_a_second_server_on_the_same_directory_is_rejected(start: Callable[..., Server]) -> None:
    first = start().until_ready()
    second = start()
    assert second.ends() == 1
    assert f"another loragate server (pid {first.process.pid})" in Path("stderr").read_text()
    assert first.runtime["pids"]["supervisor"] == first.process.pid, "the first one's file is untouched"


def test_an_engine_that_rejects_its_model_ends_the_start(start: Callable[..., Server]) -> None:
    server = start(engine_status=2)
    assert server.ends() == 2
    assert "the engine failed to start" in Path("stderr").read_text()
    assert server.lines[1:] == [], "only the admin key was said"


def test_a_stop_before_ready_is_clean(start: Callable[..., Server]) -> None:
    server = start(engine_status=1)  # never ready
    assert server.process.stdout
    assert "admin key" in server.process.stdout.readline()
    server.process.terminate()
    assert server.ends() == 0
    assert not Path(".loragate/runtime.json").exists()


def test_another_secret_key_is_rejected(start: Callable[..., Server]) -> None:
    first = start().until_ready()
    first.process.terminate()
    first.ends()
    second = start(secret_key="quite another secret key")
    assert second.ends() == 1
    assert "another secret key" in Path("stderr").read_text()


def test_the_demo_is_provisioned_before_ready_and_its_admin_key_is_kept(start: Callable[..., Server]) -> None:
    keys = set()
    for _ in range(2):
        server = start(model="", demo="1").until_ready()
        keys.add(json.loads(Path(".loragate/demo.json").read_text())["admin_key"])
        assert "Bearer lg-demo" in Path("stderr").read_text(), "an example to paste"
        assert server.lines.count("loragate ready") == 1
        server.process.terminate()
        assert server.ends() == 0
    assert len(keys) == 1
    assert [file.name for file in Path(".loragate").glob("*admin*")] == []


def test_an_interrupted_first_demo_start_can_be_repeated(start: Callable[..., Server]) -> None:
    Path("unprovided").touch()
    first = start(model="", demo="1")
    assert first.ends() == 1
    [kept] = Path(".loragate").glob("*admin*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    Path("unprovided").unlink()
    second = start(model="", demo="1").until_ready()
    assert json.loads(Path(".loragate/demo.json").read_text())["admin_key"] in first.lines[0]
    second.process.terminate()
    assert second.ends() == 0


def test_a_demo_on_another_servers_data_requires_its_admin_key(start: Callable[..., Server]) -> None:
    first = start().until_ready()
    first.process.terminate()
    first.ends()
    second = start(model="", demo="1")
    assert second.ends() == 1
    assert "LORAGATE_ADMIN_KEY" in Path("stderr").read_text()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": ""}, ("--model", "--demo")),
        ({"model": "any", "demo": "1"}, ("--model", "--demo")),
        ({"workers": "2"}, ("LORAGATE_REDIS_URL",)),
        ({"engine_target": "other:1"}, ("LORAGATE_ENGINE_TARGET",)),
    ],
)
def test_contradictory_settings_are_named(
    start: Callable[..., Server], settings: dict[str, str], named: tuple[str, ...]
) -> None:
    server = start(**settings)
    assert server.ends() == 2
    message = Path("stderr").read_text()
    assert all(name in message for name in named)
    assert not Path(".loragate").exists()


def test_the_panel_is_an_optional_part(start: Callable[..., Server]) -> None:
    server = start(panel__enabled="true").until_ready()
    wait_until(lambda: server.runtime["optional"] == {"panel": None})
    url, first = server.runtime["panel_url"], server.runtime["pids"]["panel"]
    assert httpx.get(url + "/healthz", trust_env=False, timeout=60).json() == {"status": "ok"}
    assert httpx.get(url, trust_env=False, timeout=60).headers["location"] == "/sign-in"
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: bool(server.runtime["optional"]["panel"]))
    wait_until(lambda: server.runtime["pids"]["panel"] not in (first, None))
    assert server.runtime["panel_url"] == url
    wait_until(lambda: server.runtime["optional"] == {"panel": None})
    server.process.terminate()
    assert server.ends() == 0


def test_a_panel_without_its_packages_is_reported_once(
    start: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'nicegui' else f(name, package)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = start(panel__enabled="true").until_ready()
    assert server.runtime["panel_url"] is None
    server.process.terminate()
    assert server.ends() == 0
    assert Path("stderr").read_text().count("no web panel") == 1
