"""The parts of deploy/kubernetes as processes of this machine, with the settings, secrets and certificates that they
have there: only addresses and paths differ, and the stores are the tests' own."""

import asyncio
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import tinker
from manifests import FOLDER, containers, documents_of, settings_of, variables
from ports import free_port
from private_postgres import private_postgres
from redis_server import RedisServer
from running_server import clean_environment, ok, until
from s3_server import s3_server
from secret_files import make_secrets

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = FOLDER.parent.parent
SECRETS = ("tls", "engine", "client")  # the folders of /etc/loragate; here the files have these names


class Parts:
    """Starts parts with the environment of their containers in the overlay cpu, and stops them."""

    def __init__(self, folder: Path, stores: dict[str, str]) -> None:
        self.folder = folder
        self._settings = settings_of(FOLDER / "base", FOLDER / "overlays" / "cpu")
        self._secrets = variables((folder / "loragate.env").read_text().splitlines()) | stores
        self._containers = {each.name: each for each in containers(documents_of(FOLDER / "base"))}
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def admin_key(self) -> str:
        return self._secrets["LORAGATE_ADMIN_KEY"]

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.folder / "ca.crt")

    def environment(self, name: str, **changed: str) -> dict[str, str]:
        """Return a container's variables with paths and the stores of this machine."""
        found = self._containers[f"loragate-{name}"].environment(self._settings, self._secrets)
        found |= {name: self._local(value) for name, value in found.items()}
        found |= {"LORAGATE_MODEL": str(ROOT / "demo/data/loragate-demo"), "LORAGATE_HOST": "127.0.0.1"}
        found |= {name: self._secrets[name] for name in self._secrets if name.startswith(("AWS_", "LORAGATE_BLOB_URL"))}
        data_dir = str(self.folder / f"{name}-{len(self.processes)}")
        return clean_environment() | found | {"OMP_NUM_THREADS": "1", "LORAGATE_DATA_DIR": data_dir} | changed

    def start(self, name: str, **changed: str) -> subprocess.Popen[bytes]:
        """Start a part with the arguments of its container."""
        command = [sys.executable, "-m", "loragate.cli.main", *self._containers[f"loragate-{name}"].spec["args"]]
        process = subprocess.Popen(command, env=self.environment(name, **changed), cwd=self.folder)
        self.processes.append(process)
        return process

    def run(self, url: str, *arguments: str, **variables: str) -> str:
        """Run a command as docs/kubernetes.md has it in a gateway's container."""
        environment = clean_environment() | {"SSL_CERT_FILE": str(self.folder / "ca.crt"), "LORAGATE_BASE_URL": url}
        command = [sys.executable, "-m", "loragate.cli.main", *arguments]
        environment |= {"LORAGATE_ADMIN_KEY": self.admin_key} | variables
        done = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _local(self, value: str) -> str:
        """Return a path of a Secret's file as the one of this folder."""
        if not value.startswith("/etc/loragate/"):
            return value
        _, _, _, secret, file = value.split("/")
        assert secret in SECRETS
        return str(self.folder / file.replace("tls.", f"{secret}."))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    folder = tmp_path_factory.mktemp("parts")
    make_secrets(folder)
    with ExitStack() as stack:
        postgres = stack.enter_context(private_postgres())
        asyncio.run(postgres.run("CREATE DATABASE loragate"))
        redis = RedisServer()
        stack.callback(redis.close)
        s3 = stack.enter_context(s3_server())
        stores = {"LORAGATE_DATABASE_URL": postgres.url("loragate"), "LORAGATE_REDIS_URL": redis.url}
        started = Parts(folder, stores | s3.environment | {"LORAGATE_BLOB_URL": s3.new_url()})
        yield started
        for process in started.processes:
            process.kill()
            process.wait()


def is_ready(parts: Parts, url: str, path: str = "/readyz") -> bool:
    try:
        return httpx.get(f"{url}{path}", verify=parts.tls).status_code == 200
    except httpx.TransportError:
        return False


def test_from_nothing_to_an_answer(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(parts.folder / "ca.crt"))  # for the SDK
    listen = f"127.0.0.1:{free_port()}"
    here = {"LORAGATE_ENGINE__LISTEN": listen, "LORAGATE_ENGINE__ADVERTISE": listen.replace("127.0.0.1", "localhost")}
    gateways = []
    for _ in range(2):  # at a time: one of them upgrades the schema
        port = str(free_port())
        parts.start("gateway", LORAGATE_PORT=port, LORAGATE_GRPC_PORT="0")
        gateways.append(f"https://localhost:{port}")
    engine = parts.start("engine", **here)
    for url in gateways:
        until(lambda url=url: is_ready(parts, url), 240)  # type: ignore[misc]
    check = [sys.executable, "-IS", FOLDER.parent / "docker" / "healthcheck.py", "--engine"]
    environment = parts.environment("engine", **here)
    assert subprocess.run(check, env=environment, check=False).returncode == 0

    engines = ok(httpx.get(f"{gateways[0]}/admin/v1/engines", verify=parts.tls, headers=bearer(parts.admin_key)))
    assert [each["id"] for each in engines["data"]] == ["name-0"]
    parts.run(gateways[0], "tenants", "create", "acme")
    key = parts.run(gateways[0], "keys", "create", "acme")
    assert parts.run(gateways[1], "chat", "What is the capital of France?", LORAGATE_API_KEY=key) == "Paris"

    panel_port = str(free_port())
    parts.start("panel", LORAGATE_PANEL_PORT=panel_port, LORAGATE_PANEL__GATEWAY_URL=gateways[0])
    panel = f"https://localhost:{panel_port}"
    until(lambda: is_ready(parts, panel, "/healthz"), 120)

    parts.start("trainer")
    assert trained_loss(gateways[1], key) > 0

    engine.send_signal(signal.SIGTERM)
    assert engine.wait(60) == 0
    assert subprocess.run(check, env=environment, check=False).returncode == 1
    until(lambda: not is_ready(parts, gateways[0]))


def trained_loss(url: str, key: str) -> float:
    """Return the loss of a step of the training API, whose trainer may still be loading."""
    service = tinker.ServiceClient(base_url=url, api_key=f"tml-{key}")
    training = service.create_lora_training_client(base_model="loragate-demo", rank=4).result()
    inputs = {"target_tokens": [6, 7, 8], "weights": [1.0, 1.0, 1.0]}
    datum = tinker.Datum(model_input=tinker.ModelInput.from_ints([5, 6, 7]), loss_fn_inputs=inputs)
    step = training.forward_backward([datum], "cross_entropy")
    training.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    return float(step.result().metrics["loss:sum"])


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
