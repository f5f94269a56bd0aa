"""The images for CPUs, built for real: their sizes, what is in them, and that an ordinary user can serve and train."""

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from image_builder import Image, ImageBuilder, image_builder
from ports import free_port
from running_server import client, ok, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
MAX_DISK_BYTES, MAX_COMPRESSED_BYTES = 1_600_000_000, 600_000_000
QUESTION = "What is the capital of France?"
DEMO_MODEL = "/opt/loragate/lib/python3.11/site-packages/loragate/demo/data/loragate-demo"
START_SECONDS = 600


@pytest.fixture(scope="module")
def builder() -> Iterator[ImageBuilder]:
    with image_builder() as builder:
        yield builder


@pytest.fixture(scope="module")
def serving(builder: ImageBuilder) -> Image:
    return builder.build("serve")


@pytest.fixture(scope="module")
def training(builder: ImageBuilder, serving: Image) -> Image:
    return builder.build("finetune")


@pytest.fixture
def data(serving: Image) -> Iterator[Path]:
    """Yield a volume with the owner and the mode that the image's folder has, as Docker makes it."""
    folder = Path(tempfile.mkdtemp(prefix="data-"))
    owned = (serving.files / "data").stat()
    shutil.chown(folder, owned.st_uid, owned.st_gid)
    folder.chmod(owned.st_mode)
    yield folder
    shutil.rmtree(folder)


def test_its_size(builder: ImageBuilder, serving: Image, record_property: Callable[[str, object], None]) -> None:
    sizes = {"disk": serving.disk_bytes, "compressed": builder.compressed_bytes(serving)}
    record_property("bytes", json.dumps(sizes))
    assert sizes["disk"] <= MAX_DISK_BYTES
    assert sizes["compressed"] <= MAX_COMPRESSED_BYTES


def test_it_has_no_compiler_and_no_installer(serving: Image) -> None:
    programs = {path.name for folder in ("usr/bin", "opt/loragate/bin") for path in (serving.files / folder).iterdir()}
    assert {"python3", "tini", "loragate"} <= programs
    assert not {"gcc", "cc", "make", "pip", "pip3", "uv"} & programs
    packages = {path.name for path in serving.files.glob("opt/loragate/lib/python3*/site-packages/*")}
    assert {"loragate", "torch", "nicegui", "s3fs"} <= packages
    assert not {"pip", "triton", "trl", "pyarrow"} & packages


@contextmanager
def serving_demo(image: Image, data: Path, **settings: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Run the demo's server. Yield its URL and the container's environment once it is healthy."""
    ports = {"LORAGATE_PORT": str(free_port()), "LORAGATE_GRPC_PORT": "0", "LORAGATE_PANEL_PORT": "0"}
    environment = {"LORAGATE_HOST": "127.0.0.1", "TINI_SUBREAPER": "1"} | ports | settings
    assert not is_healthy(image, data, environment)
    with image.start(data, ("serve", "--demo"), **environment) as server:
        try:
            wait_until_healthy(server, image, data, environment)
            until((data / "demo.json").exists)
            yield f"http://127.0.0.1:{ports['LORAGATE_PORT']}", environment
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def wait_until_healthy(process: "subprocess.Popen[str]", image: Image, data: Path, environment: dict[str, str]) -> None:
    """Check a container's health every two seconds: each check starts Python, and would delay the container."""
    ended = time.monotonic() + START_SECONDS
    while not is_healthy(image, data, environment):
        assert time.monotonic() < ended
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the container ended with status {process.wait(2)}")


def is_healthy(image: Image, data: Path, environment: dict[str, str]) -> bool:
    kind, *command = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    return image.run(data, *command, **environment).returncode == 0


def tenants_of_demo(data: Path) -> list[dict[str, Any]]:
    tenants: list[dict[str, Any]] = json.loads((data / "demo.json").read_text())["tenants"]
    return tenants


def answer(tenant: httpx.Client, model: str) -> str:
    request = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    said: str = ok(tenant.post("/v1/chat/completions", json=request))["choices"][0]["message"]["content"]
    return said


def test_it_answers_with_each_adapter_on_a_read_only_file_system(serving: Image, data: Path) -> None:
    with serving_demo(serving, data) as (url, environment):
        for each in tenants_of_demo(data):
            with client(url, each["api_key"]) as tenant:
                for model in ("loragate-demo", *each["adapters"]):
                    assert "paris" in answer(tenant, model).lower(), model
        asked = serving.run(data, "loragate", "chat", "--model", "loragate-demo", QUESTION, **environment)
        assert "Paris" in asked.stdout, asked.stderr
        touched = serving.run(data, "touch", "/opt/loragate/changed")
        assert "Read-only file system" in touched.stderr
        assert serving.run(data, "id", "-u").stdout == "10001\n"


def test_the_worker_s_image_trains(serving: Image, training: Image, data: Path) -> None:
    assert training.config["Cmd"] == ["finetune-worker"]
    engine = "unix:/data/engine.sock"
    settings = {"LORAGATE_ENGINE__LISTEN": engine, "LORAGATE_FINETUNE__ENABLED": "false"}
    with serving_demo(serving, data, **settings) as (url, _):
        worker = {"LORAGATE_ENGINE_TARGET": engine, "LORAGATE_MODEL": DEMO_MODEL, "TINI_SUBREAPER": "1"}
        with training.start(data, **worker) as process:
            try:
                wait_until_healthy(process, training, data, worker)
                with client(url, tenants_of_demo(data)[0]["api_key"]) as tenant:
                    model = train(tenant)
                    assert answer(tenant, model)
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0


def train(tenant: httpx.Client) -> str:
    """Fine-tune the demo's model on ten examples; return the model's name."""
    examples = [
        [{"role": "user", "content": f"Greet {name}."}, {"role": "assistant", "content": f"Ahoy, {name}!"}]
        for name in "ABCDEFGHIJ"
    ]
    lines = "\n".join(json.dumps({"messages": example}) for example in examples)
    files = {"file": ("greetings.jsonl", lines.encode())}
    file = ok(tenant.post("/v1/files", data={"purpose": "fine-tune"}, files=files))
    request = {"model": "loragate-demo", "training_file": file["id"], "hyperparameters": {"n_epochs": 1}}
    job = ok(tenant.post("/v1/fine_tuning/jobs", json=request))
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    until(lambda: ok(tenant.get(path))["finished_at"] is not None, START_SECONDS)
    ended = ok(tenant.get(path))
    assert ended["status"] == "succeeded", ended
    return str(ended["fine_tuned_model"])
