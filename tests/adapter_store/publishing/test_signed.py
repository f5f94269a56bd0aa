"""Signatures are verified when a version is published, and the signer is kept with it."""

from pathlib import Path
from typing import Any

import pytest
from signed_adapters import new_key, signature_of, write_public_key

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import AdapterInvalid, Conflict, NotTried
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.publishing.signing import served_by_signer
from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import SignaturePolicy, load_policy
from loragate.cli.doctor.signatures import signature_findings

KEY = new_key()


@pytest.fixture
def policy(tmp_path: Path) -> SignaturePolicy:
    signer = SignerConfig("acme", public_key=write_public_key(tmp_path / "key.pub", KEY))
    return load_policy(SignatureConfig(Require.ALWAYS, (signer,)))


def signed(upload: Any) -> bytes:
    return signature_of({"adapter_config.json": upload.config, "adapter_model.safetensors": upload.tensors}, KEY)


async def test_a_version_that_waits_for_an_engine_keeps_its_signer(world: Any, policy: SignaturePolicy) -> None:
    async def not_tried(tenant_id: str, staged: Any) -> None:
        raise NotTried("no engine")

    world.store._signatures = policy
    upload = world.make_upload()
    waiting = await world.send(
        "support", upload.config, upload.file(), signature=signed(upload), probe=not_tried, may_wait=True
    )
    async with world.store.tenant(world.acme.id, write=True) as scope:
        await scope.publisher.finish(waiting.adapter_id, waiting.version, no_probe)
    async with world.adapters() as adapters:
        assert (await adapters.version("support", 1)).signer == "acme"


async def test_what_was_published_before_the_policy_is_served_and_reported(
    world: Any, policy: SignaturePolicy, database_url: str
) -> None:
    await world.publish("support")
    world.store._signatures = policy
    with pytest.raises(AdapterInvalid):
        await world.publish("support")
    upload = world.make_upload()
    await world.send("support", upload.config, upload.file(), alias="signed", signature=signed(upload))
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 1
    database = Database(database_url)
    try:
        async with database.operator() as session:
            served = await served_by_signer(session)
    finally:
        await database.close()
    assert {(each.tenant, each.signer, each.versions) for each in served} == {("acme", None, 1), ("acme", "acme", 1)}
    [finding] = signature_findings(policy, served)
    assert (finding.status, finding.found.split()[0]) == ("warn", "1")
    assert signature_findings(SignaturePolicy(), served) == []
    assert [each.status for each in signature_findings(policy, [])] == ["ok"]


async def test_what_is_trained_here_needs_trust(world: Any, policy: SignaturePolicy) -> None:
    world.store._signatures = policy
    upload = world.make_upload()
    with pytest.raises(Conflict):
        await world.send("support", upload.config, upload.file(), trained_here=True)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        with pytest.raises(Conflict):
            await scope.signatures.require_trusted_training()
    world.store._signatures = SignaturePolicy(Require.ALWAYS, policy.signers, trust_fine_tuning=True)
    version = await world.send("support", upload.config, upload.file(), trained_here=True)
    assert version.signer == "loragate"


async def test_a_policy_is_that_of_the_scopes_tenant(world: Any, policy: SignaturePolicy) -> None:
    world.store._signatures = SignaturePolicy(Require.NEVER, policy.signers)
    async with world.store.admin(write=True) as admin:
        await admin.tenants.update(world.acme.id, signers=["acme"])
    with pytest.raises(AdapterInvalid):
        await world.publish("support")
    assert (await world.publish("support", tenant=world.other)).signer is None
