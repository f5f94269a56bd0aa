"""A gateway with a fake engine on a thread, two tenants, and a real panel in its own process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from loragate.adapter_store.fleet.engine_leases import EngineLease
from loragate.adapter_store.training.lease import Progress
from loragate.adapter_store.training.objects import CommandKind, Outcome, RequestStatus
from loragate.adapter_store.usage.training import TrainingUsage
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.connections.tls import ANY_VALID, ClientTls
from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.fake_worker import FakeWorker
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.running_gateway import ADMIN_KEY, Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.training.training_objects import new_run, new_session

WAIT_SECONDS = 120


@dataclass
class World:
    """A gateway and its panel. `key` is acme's, with all scopes and admin; `other_key` globex's. Both are tenants."""

    folder: Path
    gateway: "GatewayThread"
    panel: "Panel"
    tenant_id: str
    key: str
    other_tenant_id: str
    other_key: str
    admin_key: str = ADMIN_KEY
    job: str = ""

    def api(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.gateway.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False)

    def adapter(self, name: str, *, seed: int = 0, poison: bool = False, **written: Any) -> Path:
        """Write an adapter's folder as PEFT saves it."""
        tensor = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight" if poison else None
        return tiny_model.write_adapter(self.folder / name, rank=2, seed=seed, poison=tensor, **written)

    def new_key(self, tenant_id: str, *scopes: str) -> str:
        """Create a key of a tenant with these scopes."""
        with self.api(self.admin_key) as api:
            made = api.post(f"/admin/v1/tenants/{tenant_id}/keys", json={"scopes": scopes})
        assert made.is_success, made.text
        return str(made.json()["secret"])

    def upload(
        self, name: str, *, seed: int = 0, key: str | None = None, labels: tuple[str, ...] = (), **fields: str
    ) -> dict[str, Any]:
        """Upload a new adapter; with `labels` it is a classifier."""
        named = {"id2label": {str(n): label for n, label in enumerate(labels)}} if labels else {}
        folder = self.adapter(f"{name}-{seed}", seed=seed, labels=len(labels), **named)
        files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
        with self.api(key) as api:
            answer = api.post("/v1/adapters", data={"name": name} | fields, files=files)
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created


class GatewayThread:
    """A gateway that can be stopped and started again on its port; `changed` are fields of its configuration."""

    def __init__(self, folder: Path, **changed: Any) -> None:
        self.engine: StubEngine
        self.running: Gateway
        self.response: str | None = None  # None: the model's name
        self._folder = folder
        self._changed = changed
        self._stack = AsyncExitStack()
        self._serving = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self._begin())
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return self.running.base_url

    def start(self) -> None:
        self._do(self._start())

    def stop(self) -> None:
        self._do(self._serving.aclose())

    def close(self) -> None:
        try:
            self.stop()
            self._do(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def hold_after(self, tokens: int | None) -> None:
        """Pause responses after this many tokens until `resume`."""
        self._do(self._hold(tokens))

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self.engine.resume.set)

    def allow_exports(self) -> None:
        self._loop.call_soon_threadsafe(self.engine.export_allowed.set)

    def half_trained(self) -> None:
        """Validate the waiting job, and train half of it."""
        self._do(self._train())

    def classifier_trained(self) -> None:
        """Finish the waiting job with a classifier that is right three times of four."""
        self._do(self._train_classifier())

    def training_run(self, tenant_id: str) -> str:
        """Create a run of the training API that has computed some losses; return its id."""
        return self._do(self._training_run(tenant_id))

    def register(self, engine_id: str, target: str) -> None:
        """Add an engine to the registry, until the lease ends."""
        lease = EngineLease(id=engine_id, target=target, base_digest=self.engine.manifest.base_digest, adapter_slots=1)
        assert self.running.services is not None
        self._do(self.running.services.store.engine_leases.renew(lease, "the tests"))

    def unregister(self, engine_id: str) -> None:
        assert self.running.services is not None
        self._do(self.running.services.store.engine_leases.give_back(engine_id, "the tests"))

    async def _training_run(self, tenant_id: str) -> str:
        assert self.running.services is not None
        store = self.running.services.store
        run_id = await new_run(store, tenant_id, await new_session(store, tenant_id))
        async with store.admin(write=True) as admin:
            await admin.training_queue.claim("trainer-1", 1)
        losses = [12 * (0.5 + 2.2 * 0.95**step + 0.05 * (step * 37 % 11 - 5)) for step in range(60)]
        outcomes = {seq: Outcome(RequestStatus.DONE, b"{}", loss=loss, tokens=12) for seq, loss in enumerate(losses)}
        progress = Progress(outcomes, gradients_failed=False, steps=30, used=TrainingUsage(720))
        async with store.tenant(tenant_id, write=True) as scope:
            for seq in range(1, 60):
                await scope.training_runs.submit(run_id, seq, CommandKind.FORWARD_BACKWARD, b"%d" % seq)
            await scope.training_lease.record(run_id, "trainer-1", progress, "tiny/base-model")
        return run_id

    async def _train(self) -> None:
        worker = FakeWorker(self.running)
        await worker.validate()
        job = await worker.train(steps=0)
        for step in range(1, 61):
            loss = 0.4 + 2.2 * 0.95**step + 0.04 * (step * 37 % 11 - 5)
            figures = {"step": step, "steps": 120, "train_loss": loss, "learning_rate": 2e-4 * min(1, step / 12)}
            checked = {"valid_loss": loss + 0.15} if step % 6 == 0 else {}
            await worker.run("log_event", job.id, f"Step {step}/120", type="metrics", data=figures | checked)
            if step in (30, 60):
                await worker.run("checkpoint", job.id, step, figures | checked, f"ft:tiny:acme:poet:ckpt-step-{step}")
        await worker.run("progress", job.id, 60, 120)
        await worker.run("log_event", job.id, "Training began.")

    async def _train_classifier(self) -> None:
        worker = FakeWorker(self.running)
        await worker.validate()
        labels = [
            {"label": label, "examples": count, "precision": 0.5, "recall": 0.5, "f1": 0.5}
            for label, count in (("<b>a</b>", 1), ("b", 3))
        ]
        job = await worker.train()
        evaluation = {"problem_type": "single_label_classification", "examples": 4, "accuracy": 0.75, "macro_f1": 0.7}
        evaluation |= {"mse": None, "pearson": None, "labels": labels, "confusion_matrix": [[1, 0], [1, 2]]}
        await worker.run("succeed", job.id, "ft:tiny:acme:topics:12345678", None, evaluation)

    async def _hold(self, tokens: int | None) -> None:
        self.engine.pause_after = tokens
        self.engine.resume.clear()

    async def _begin(self) -> None:
        tokenizer = tiny_model.byte_level_tokenizer()
        self.engine = await self._stack.enter_async_context(
            stub_engine(tokenizer, max_model_len=2048, **tiny_model.HEADS)
        )
        self._config = replace(await new_config(self._folder, self.engine), reasoning_parser="think")
        self._config = replace(self._config, responses=ResponsesConfig(store=True), merged_exports=True)
        self._config = replace(self._config, **self._changed)
        self.tenants = await new_tenants(self._config)

        def answer(submit: pb.Submit) -> list[int]:
            who = submit.adapter.digest[7:15] if submit.HasField("adapter") else "the base model"
            text = self.response or f"This is {who} speaking."
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        self.engine.script = answer

    async def _start(self) -> None:
        self.running = await self._serving.enter_async_context(
            serving(self._config, self.engine, self.tenants, port=self._port)
        )
        self._port = int(self.running.base_url.rpartition(":")[2])
        await self.running.until_ready()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)


class Panel:
    """`loragate panel` with these settings on a socket that the test holds, so that it can be restarted there."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        tls = settings.get("tls_cert")
        self.url = f"{'http' if tls is None else 'https'}://{self.address}"
        self._tls = ANY_VALID if tls is None else ClientTls(Path(tls), Path(settings["client_cert"]))
        self.folder = folder
        self._log = folder / "panel.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LORAGATE_")}
        self._environment = kept | {f"LORAGATE_{name.upper()}": value for name, value in settings.items()}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "loragate.cli.main", "panel", "--descriptor", str(self._listener.fileno())]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self._environment, cwd=self.folder, stderr=log, pass_fds=[self._listener.fileno()]
            )
        with self.visitor() as browser:
            assert browser.get("/healthz").is_success  # the socket waits for it

    def visitor(self, **given: Any) -> httpx.Client:
        """Return an HTTP client that behaves as a browser would, with these headers and cookies."""
        verify = self._tls.context()
        return httpx.Client(base_url=self.url, timeout=WAIT_SECONDS, trust_env=False, verify=verify, **given)

    def restart(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()
            self._listener.close()

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def panel_world(folder: Path) -> Iterator[World]:
    """Run a gateway and its panel."""
    gateway = GatewayThread(folder)
    try:
        (folder / "panel").mkdir()
        panel = Panel(folder / "panel", panel__gateway_url=gateway.url)
        try:
            yield _with_names(folder, gateway, panel)
        finally:
            panel.close()
    finally:
        gateway.close()


def _with_names(folder: Path, gateway: GatewayThread, panel: Panel) -> World:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    keys = []
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False) as admin:
        tenants = sorted(admin.get("/admin/v1/tenants").json()["data"], key=lambda each: each["name"])
        for tenant, name in zip(tenants, ("acme", "globex"), strict=True):
            assert admin.patch(f"/admin/v1/tenants/{tenant['id']}", json={"name": name}).is_success
            body = {"name": "panel", "scopes": ["all", "admin"]}
            keys.append(admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json=body).json()["secret"])
    return World(folder, gateway, panel, tenants[0]["id"], keys[0], tenants[1]["id"], keys[1])
