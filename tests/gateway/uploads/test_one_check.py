"""All ways to add an adapter go through one check: what it rejects is rejected everywhere, with the same message."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from loragate.adapter_store.publishing import staging
from loragate.cli.client.transfer import checking
from loragate.engine.adapters.weights import load as adapter_weights
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.imports import ImportConfig
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.read import read_adapter
from tests.gateway import tiny_model
from tests.gateway.fake_hub import fake_hub
from tests.gateway.grpc.test_adapters import parts
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.imports.test_hub import begin, ended
from tests.gateway.running_gateway import serving
from tests.gateway.stub_engine import StubEngine

WORDS = "The one check says no."


def _no(*_: Any) -> NoReturn:
    raise AdapterRejected(WORDS, "adapter_config.json: r")


async def test_every_way_to_add_an_adapter_uses_it(
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(staging, "read_adapter", _no)
    folder = tiny_model.write_adapter(tmp_path / "poet")
    async with fake_hub() as hub:
        hub.offer("acme/poet", folder)
        config = replace(config, imports=ImportConfig(hub=hub.url, hosts=()))
        async with serving(config, engine, tenants) as gateway, gateway.http() as http:
            await gateway.until_ready()
            files = {file.name: (file.name, file.read_bytes()) for file in folder.iterdir()}
            uploaded = (await http.post("/v1/adapters", data={"name": "poet"}, files=files)).json()["error"]
            tensors = ("adapter_model.safetensors", (folder / "adapter_model.safetensors").read_bytes())
            file = (await http.post("/v1/files", data={"purpose": "adapter"}, files={"file": tensors})).json()
            body = {"name": "poet", "tensors_file_id": file["id"]}
            body["adapter_config"] = (folder / "adapter_config.json").read_text()
            from_files = (await http.post("/v1/adapters", json=body)).json()["error"]
            imported = (await ended(http, (await begin(http))["id"]))["error"]
            async with connected(gateway.grpc_target, gateway.key) as client:
                call = client.adapters.Upload(parts(folder, name="poet"), metadata=client.metadata)
                streamed = await rejection(call)
            assert (await http.get("/v1/adapters")).json()["data"] == []
    reported = {(each["message"], each["param"], each["code"]) for each in (uploaded, from_files, imported)}
    reported.add((streamed.message, streamed.param, streamed.code))
    assert reported == {(WORDS, "adapter_config.json: r", "invalid_adapter")}


def test_other_readers_of_adapters_use_it_too() -> None:
    """The command that checks without a server, and the engine before it loads an adapter."""
    assert checking.read_adapter is read_adapter
    assert adapter_weights.read_adapter is read_adapter
    assert staging.read_adapter is read_adapter
