"""The whole supervisor in its own process, with lightweight fakes of engine and gateway."""

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import clean_environment

from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.supervisor.serve import serve
from tests.cli.supervisor.fakes.serve import run

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([run.__module__])
_USUAL = {
    "LORAGATE_MODEL": "any",
    "LORAGATE_PORT": "0",
    "LORAGATE_GRPC_PORT": "0",
    "LORAGATE_PANEL_PORT": "0",
    "LORAGATE_PANEL__ENABLED": "false",
}


class Server:
    """A supervisor that runs in `folder`; `sockets` is a folder for sockets."""

    def __init__(
        self, folder: Path, sockets: str, *, engine_status: int = 0, missing: str = "", **settings: str
    ) -> None:
        named = {f"LORAGATE_{name.upper()}": value for name, value in settings.items()}
        environment = {**clean_environment(), "TMPDIR": sockets, **_USUAL, **named}
        self.folder = folder
        stdout, written = _FORKED.Pipe(duplex=False)
        self.process = _FORKED.Process(target=run, args=(folder, environment, written, engine_status, missing))
        self.process.start()
        written.close()
        self.stdout = os.fdopen(os.dup(stdout.fileno()))
        stdout.close()
        self.lines: list[str] = []

    def until_ready(self) -> "Server":
        for line in self.stdout:
            self.lines.append(line.rstrip())
            if line == "loragate ready\n":
                return self
        pytest.fail(f"ended with {self.wait()}: {(self.folder / 'stderr').read_text()}")

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def runtime(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / ".loragate/runtime.json").read_text())
        return content

    @property
    def children(self) -> list[int]:
        pids = self.runtime["pids"]
        return [pids["engine"], *pids["gateway"]]

    @property
    def events(self) -> list[str]:
        file = self.folder / "events"
        return file.read_text().splitlines() if file.exists() else []

    def ends(self) -> int:
        self.lines += self.stdout.read().splitlines()
        return self.wait()

    def wait(self) -> int:
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


@contextmanager
def servers() -> Iterator[Callable[..., Server]]:
    """Yield what starts a server in a folder, the current one unless stated otherwise."""
    started: list[Server] = []
    with tempfile.TemporaryDirectory(prefix="lg-") as short:  # a socket's path may not be long

        def start(folder: Path | None = None, **options: Any) -> Server:
            started.append(Server(folder or Path.cwd(), short, **options))
            return started[-1]

        yield start
        for server in started:
            server.process.kill()
            server.wait()
            server.stdout.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    with servers() as start:
        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the tests after which it still runs."""
    with servers() as start:
        yield start(tmp_path_factory.mktemp("shared")).until_ready()


@dataclass(frozen=True)
class Ended:
    """A server that was stopped, and its children's former process ids."""

    server: Server
    children: list[int]
    status: int

    def copy(self) -> None:
        """Copy its data into the current folder."""
        shutil.copytree(self.server.folder / ".loragate", ".loragate")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The first start in its folder."""
    with servers() as start:
        server = start(tmp_path_factory.mktemp("ended")).until_ready()
        children = server.children
        server.process.terminate()
        return Ended(server, children, server.ends())


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_runtime_file_is_complete(shared: Server) -> None:
    file = shared.folder / ".loragate/runtime.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    runtime = shared.runtime
    host, _, port = runtime["grpc_target"].rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert runtime["panel_url"] is None
    pids = runtime["pids"]
    assert pids["supervisor"] == shared.pid
    assert (pids["finetune"], pids["panel"], len(pids["gateway"])) == (None, None, 1)
    assert all(is_running(pid) for pid in shared.children)
    assert all(os.getpgid(pid) == pid for pid in shared.children), "Ctrl-C must not reach the children"
    assert {os.getsid(pid) for pid in shared.children} == {os.getsid(0)}, "or being nice counts for nothing"
    assert httpx.get(runtime["base_url"] + "/readyz", trust_env=False, timeout=60).status_code == 200


def test_ready_is_printed_once_and_the_gateway_drains_before_the_engine_stops(ended: Ended) -> None:
    assert ended.status == 0
    assert ended.server.lines.count("loragate ready") == 1
    assert ended.server.events == ["gateway drains", "gateway stops", "engine stops"]
    assert not any(is_running(pid) for pid in ended.children)
    assert not (ended.server.folder / ".loragate/runtime.json").exists()


def test_the_admin_key_is_printed_at_the_first_start_only(ended: Ended, start: Callable[..., Server]) -> None:
    (line,) = [line for line in ended.server.lines if "admin key" in line]
    assert "lg-admin-" in line
    ended.copy()
    second = start().until_ready()
    second.process.terminate()
    assert second.ends() == 0
    assert [line for line in second.lines if "admin key" in line] == []
    assert "lg-admin-" not in Path("stderr").read_text()


def test_a_given_admin_key_is_not_printed(start: Callable[..., Server]) -> None:
    server = start(admin_key="given-by-the-operator-0001").until_ready()
    server.process.terminate()
    server.ends()
    assert server.lines == ["loragate ready"]


def test_a_signal_that_arrives_twice_counts_once(start: Callable[..., Server]) -> None:
    server = start().until_ready()
    server.process.terminate()
    os.kill(server.pid, signal.SIGINT)
    assert server.ends() == 0
    assert server.events == ["gateway drains", "gateway stops", "engine stops"]


def test_a_second_signal_stops_at_once(start: Callable[..., Server]) -> None:
    server = start(drain_seconds="3600").until_ready()
    children = server.children
    Path("stubborn").touch()
    server.process.terminate()
    wait_until(lambda: server.events == ["gateway drains"])
    while server.process.is_alive():
        server.process.terminate()
        time.sleep(0.1)
    assert server.ends() == 1
    assert not any(is_running(pid) for pid in children)
    assert not Path(".loragate/runtime.json").exists()


def test_a_killed_engine_is_restarted_and_the_gateway_stays(shared: Server) -> None:
    before = shared.runtime["pids"]
    os.kill(before["engine"], signal.SIGKILL)
    wait_until(lambda: shared.runtime["pids"]["engine"] != before["engine"])
    after = shared.runtime["pids"]
    assert is_running(after["engine"])
    assert after["gateway"] == before["gateway"]
    assert shared.lines.count("loragate ready") == 1


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
    assert "gateway stops" in server.events


def test_the_ports_survive_a_killed_gateway(shared: Server) -> None:
    before = shared.runtime
    os.kill(before["pids"]["gateway"][0], signal.SIGKILL)
    wait_until(lambda: shared.runtime["pids"]["gateway"] != before["pids"]["gateway"])
    assert shared.runtime["base_url"] == before["base_url"]
    assert shared.runtime["grpc_target"] == before["grpc_target"]
    # No retry: the listener never closed, so the call waits for the new gateway.
    assert httpx.get(before["base_url"] + "/readyz", trust_env=False, timeout=60).status_code == 200


def test_the_grpc_port_is_unavailable_to_others(shared: Server, start: Callable[..., Server]) -> None:
    port = shared.runtime["grpc_target"].rpartition(":")[2]
    second = start(grpc_port=port)
    assert second.ends() == 1
    assert f"port {port} on 127.0.0.1 is in use: choose another one with --grpc-port" in Path("stderr").read_text()


def test_the_children_of_a_killed_supervisor_die_and_its_directory_is_usable(start: Callable[..., Server]) -> None:
    first = start().until_ready()
    old = first.children
    os.kill(old[0], signal.SIGSTOP)
    first.process.kill()
    first.wait()
    second = start().until_ready()
    assert not set(second.children) & set(old)
    wait_until(lambda: not any(is_running(pid) for pid in old))
    second.process.terminate()
    assert second.ends() == 0


def test_a_second_server_on_the_same_directory_is_rejected(shared: Server, start: Callable[..., Server]) -> None:
    second = start(data_dir=str(shared.folder / ".loragate"))
    assert second.ends() == 1
    assert f"another loragate server (pid {shared.pid})" in Path("stderr").read_text()
    assert shared.runtime["pids"]["supervisor"] == shared.pid, "the first one's file is untouched"


def test_an_engine_that_rejects_its_model_ends_the_start(start: Callable[..., Server]) -> None:
    server = start(engine_status=2)
    assert server.ends() == 2
    assert "the engine failed to start" in Path("stderr").read_text()
    assert server.lines[1:] == [], "only the admin key was said"


def test_a_stop_before_ready_is_clean(start: Callable[..., Server]) -> None:
    server = start(engine_status=1)  # never ready
    assert "admin key" in server.stdout.readline()
    server.process.terminate()
    assert server.ends() == 0
    assert not Path(".loragate/runtime.json").exists()


def test_another_secret_key_is_rejected(ended: Ended, start: Callable[..., Server]) -> None:
    ended.copy()
    second = start(secret_key="quite another secret key")
    assert second.ends() == 1
    assert "another secret key" in Path("stderr").read_text()


def test_the_demo_is_provisioned_before_ready_and_its_admin_key_is_kept(start: Callable[..., Server]) -> None:
    """Also after a first start that was interrupted."""
    Path("unprovided").touch()
    first = start(model="", demo="1")
    assert first.ends() == 1
    assert "loragate ready" not in first.lines
    [kept] = Path(".loragate").glob("*admin*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    Path("unprovided").unlink()
    keys = set()
    for _ in range(2):
        server = start(model="", demo="1").until_ready()
        keys.add(json.loads(Path(".loragate/demo.json").read_text())["admin_key"])
        assert "Bearer lg-demo" in Path("stderr").read_text(), "an example to paste"
        assert server.lines.count("loragate ready") == 1
        server.process.terminate()
        assert server.ends() == 0
    [key] = keys
    assert key in first.lines[0]
    assert list(Path(".loragate").glob("*admin*")) == []


def test_a_demo_on_another_servers_data_requires_its_admin_key(ended: Ended, start: Callable[..., Server]) -> None:
    ended.copy()
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
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], named: tuple[str, ...]
) -> None:
    for name, value in ({"model": "any"} | settings).items():
        monkeypatch.setenv(f"LORAGATE_{name.upper()}", value)
    with pytest.raises(CliError) as caught:
        asyncio.run(serve(load()))
    assert caught.value.status == 2
    assert all(name in caught.value.message for name in named)
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


def test_a_panel_without_its_packages_is_reported_once(start: Callable[..., Server]) -> None:
    server = start(panel__enabled="true", missing="nicegui").until_ready()
    assert server.runtime["panel_url"] is None
    server.process.terminate()
    assert server.ends() == 0
    assert Path("stderr").read_text().count("no web panel") == 1
