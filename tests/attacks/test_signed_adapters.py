"""Publishing past the policy on signatures: over each way in which adapters come, and by another tenant's signer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from signed_adapters import Key, new_key, signature_of, write_public_key

from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES
from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import SignaturePolicy, load_policy
from loragate.gateway.config.gateway import GatewayConfig
from loragate.v1 import adapters_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

CONFIG, TENSORS, SIGNATURE = "adapter_config.json", "adapter_model.safetensors", "model.sig"
Files = dict[str, bytes]


@dataclass
class Signers:
    """The keys of two signers, and the policy that trusts both."""

    acme: Key
    other: Key
    policy: SignaturePolicy


@pytest.fixture
def signers(tmp_path: Path) -> Signers:
    acme, other = new_key(), new_key()
    configured = (
        SignerConfig("acme", public_key=write_public_key(tmp_path / "acme.pub", acme)),
        SignerConfig("other", public_key=write_public_key(tmp_path / "other.pub", other)),
    )
    return Signers(acme, other, load_policy(SignatureConfig(Require.ALWAYS, configured)))


@pytest.fixture
async def guarded(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], signers: Signers
) -> AsyncIterator[Gateway]:
    """A gateway that publishes signed adapters only."""
    async with serving(replace(config, signatures=signers.policy), engine, tenants) as running:
        await running.until_ready()
        yield running


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return {file.name: file.read_bytes() for file in tiny_model.write_adapter(tmp_path / "poet").iterdir()}


async def upload(gateway: Gateway, files: Files, key: str | None = None) -> httpx.Response:
    async with gateway.http(key) as http:
        parts = {name: (name, content) for name, content in files.items()}
        response = await http.post("/v1/adapters", data={"name": "poet"}, files=parts)
    if response.status_code == 201:
        gateway.engine.discard_probe(response.json()["digest"])
    return response


def error(response: httpx.Response) -> tuple[int, str, str | None]:
    found: dict[str, Any] = response.json()["error"]
    return response.status_code, found["code"], found["param"]


async def stored(gateway: Gateway) -> list[str]:
    """Return what the first tenant has, and the bytes that exist for any tenant."""
    async with gateway.http() as http:
        adapters = (await http.get("/v1/adapters")).json()["data"]
    blobs = Path(gateway.config.blob_url.removeprefix("file://"))
    return [*(each["name"] for each in adapters), *(str(file) for file in blobs.rglob(TENSORS))]


async def test_only_what_a_signer_has_signed_is_published(guarded: Gateway, files: Files, signers: Signers) -> None:
    signature = signature_of(files, signers.acme)
    assert error(await upload(guarded, files)) == (400, "signature_required", SIGNATURE)
    unknown = files | {SIGNATURE: signature_of(files, new_key())}
    assert error(await upload(guarded, unknown)) == (400, "unknown_signer", SIGNATURE)
    changed = files | {CONFIG: files[CONFIG].replace(b'"lora_alpha": 8', b'"lora_alpha": 64'), SIGNATURE: signature}
    assert changed[CONFIG] != files[CONFIG]
    assert error(await upload(guarded, changed)) == (400, "signature_mismatch", CONFIG)
    same_digest = files | {CONFIG: files[CONFIG] + b"\n", SIGNATURE: signature}
    assert error(await upload(guarded, same_digest)) == (400, "signature_mismatch", CONFIG)
    huge = files | {SIGNATURE: b" " * (MAX_SIGNATURE_BYTES + 1)}
    assert error(await upload(guarded, huge)) == (400, "invalid_value", SIGNATURE)
    assert await stored(guarded) == []
    await guarded.until_nothing_is_spooled()


async def test_the_signer_is_recorded(guarded: Gateway, files: Files, signers: Signers) -> None:
    signed = files | {SIGNATURE: signature_of(files | {"README.md": b"# Poet"}, signers.acme)}
    created = await upload(guarded, signed)
    assert (created.status_code, created.json()["signer"]) == (201, "acme"), created.text
    async with guarded.http() as http, guarded.admin() as operator:
        assert (await http.get("/v1/adapters/poet/versions/1")).json()["signer"] == "acme"
        listed = (await http.get("/v1/adapters/poet/versions")).json()["data"]
        events = (await operator.get("/admin/v1/audit", params={"action": "adapter_version.create"})).json()["data"]
    assert [version["signer"] for version in listed] == ["acme"]
    assert events[0]["after"]["signer"] == "acme"
    async with connected(guarded.grpc_target, guarded.key) as client:
        asked = pb.GetVersionRequest(name="poet", version=1)
        assert (await client.adapters.GetVersion(asked, metadata=client.metadata)).signer == "acme"


async def test_each_tenant_has_its_own_signers(guarded: Gateway, files: Files, signers: Signers) -> None:
    by_acme, by_other = (files | {SIGNATURE: signature_of(files, key)} for key in (signers.acme, signers.other))
    tenant = f"/admin/v1/tenants/{guarded.tenant_id}"
    async with guarded.admin() as operator, guarded.http() as http:
        unknown = await operator.patch(tenant, json={"signers": ["acme", "unknown"]})
        assert error(unknown) == (400, "invalid_value", "signers")
        assert (await operator.patch(tenant, json={"signers": ["acme"]})).json()["signers"] == ["acme"]
        assert (await http.patch(tenant, json={"signers": []})).status_code == 403
        assert error(await upload(guarded, by_other)) == (400, "unknown_signer", SIGNATURE)
        assert (await upload(guarded, by_acme)).json()["signer"] == "acme"
        assert (await upload(guarded, by_other, guarded.other_key)).json()["signer"] == "other"
        assert (await operator.patch(tenant, json={"signers": []})).json()["signers"] == []
        assert (await upload(guarded, by_other)).json()["signer"] == "other"
        events = (await operator.get("/admin/v1/audit", params={"action": "tenant.update"})).json()["data"]
    assert events[0]["before"] == {"signers": ["acme"]}
    assert events[0]["after"] == {"signers": []}


async def test_a_tenants_signers_are_required_without_a_policy_for_all(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str], files: Files, signers: Signers
) -> None:
    open_to_all = replace(signers.policy, require=Require.NEVER)
    async with serving(replace(config, signatures=open_to_all), engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.admin() as operator:
            await operator.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"signers": ["acme"]})
        assert error(await upload(gateway, files)) == (400, "signature_required", SIGNATURE)
        unsigned = await upload(gateway, files, gateway.other_key)
        assert (unsigned.status_code, unsigned.json()["signer"]) == (201, None)


async def test_files_that_were_uploaded_before(guarded: Gateway, files: Files, signers: Signers) -> None:
    async with guarded.http() as http:
        sent = {"file": (TENSORS, files[TENSORS])}
        file = (await http.post("/v1/files", data={"purpose": "adapter"}, files=sent)).json()["id"]
        body = {"name": "poet", "tensors_file_id": file, "adapter_config": files[CONFIG].decode()}
        assert error(await http.post("/v1/adapters", json=body)) == (400, "signature_required", SIGNATURE)
        signature = signature_of(files, signers.acme).decode()
        other = body | {"adapter_config": body["adapter_config"] + " ", "signature": signature}
        assert error(await http.post("/v1/adapters", json=other)) == (400, "signature_mismatch", CONFIG)
        created = await http.post("/v1/adapters", json=body | {"signature": signature})
    assert (created.status_code, created.json()["signer"]) == (201, "acme"), created.text
    guarded.engine.discard_probe(created.json()["digest"])


async def test_uploads_over_grpc(guarded: Gateway, files: Files, signers: Signers) -> None:
    unsigned = pb.UploadRequest(name="poet", adapter_config=files[CONFIG], adapter_model=files[TENSORS])
    signature = signature_of(files, signers.acme)
    halves = [pb.UploadRequest(signature=half) for half in (signature[:100], signature[100:])]
    async with connected(guarded.grpc_target, guarded.key) as client:
        failed = await rejection(client.adapters.Upload(iter([unsigned]), metadata=client.metadata))
        assert (failed.status, failed.code, failed.param) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "signature_required",
            SIGNATURE,
        )
        created = await client.adapters.Upload(iter([unsigned, *halves]), metadata=client.metadata)
    assert created.signer == "acme"
    guarded.engine.discard_probe(created.digest)


async def test_fine_tuning_is_no_way_around_it(
    guarded: Gateway,
    config: GatewayConfig,
    engine: StubEngine,
    tenants: tuple[str, str, str],
    signers: Signers,
) -> None:
    """A job is rejected before it trains; where the operator trusts training, the missing file is the first problem."""
    job = {"model": tiny_model.MODEL_ID, "training_file": "file-none"}
    async with guarded.http() as http:
        assert error(await http.post("/v1/fine_tuning/jobs", json=job)) == (409, "signature_required", None)
    trusting = replace(signers.policy, trust_fine_tuning=True)
    async with serving(replace(config, signatures=trusting), engine, tenants) as gateway:
        await gateway.until_ready()
        async with gateway.http() as http, gateway.admin() as operator:
            assert (await http.post("/v1/fine_tuning/jobs", json=job)).status_code == 404
            await operator.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"signers": ["acme"]})
            assert error(await http.post("/v1/fine_tuning/jobs", json=job)) == (409, "signature_required", None)
            await operator.patch(f"/admin/v1/tenants/{gateway.tenant_id}", json={"signers": ["acme", "loragate"]})
            assert (await http.post("/v1/fine_tuning/jobs", json=job)).status_code == 404
