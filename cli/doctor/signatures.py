"""The check of signatures: the signers' files, and what is served without one of its tenant's signers."""

import asyncio

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.publishing.signing import SignedVersions, served_by_signer
from loragate.adapter_store.signatures.config import Require
from loragate.adapter_store.signatures.policy import SignaturePolicy, load_policy
from loragate.cli.doctor.database import not_created
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.settings.model import Settings

_SHOWN = 5  # tenants


def check_signatures(settings: Settings) -> list[Finding]:
    """Check the signers' files and the versions that are served. Nothing is found where nothing must be signed."""
    try:
        policy = load_policy(settings.signatures)
    except ValueError as error:
        return [fail("signatures", str(error), "correct LORAGATE_SIGNATURES__SIGNERS, or the file")]
    try:
        return signature_findings(policy, asyncio.run(_served(settings)))
    except StoreError:  # another check reports it
        return signature_findings(policy, [])


def signature_findings(policy: SignaturePolicy, served: list[SignedVersions]) -> list[Finding]:
    """Compare what is served with what would be published now."""
    required = policy.require is Require.ALWAYS or any(each.tenant_signers for each in served)
    unsigned: dict[str, int] = {}
    for each in served:
        if not policy.of(each.tenant_signers).accepts(each.signer):
            unsigned[each.tenant] = unsigned.get(each.tenant, 0) + each.versions
    if unsigned:
        names = ", ".join(sorted(unsigned)[:_SHOWN]) + (", …" if len(unsigned) > _SHOWN else "")
        found = f"{sum(unsigned.values())} versions are served that no signer of their tenant has signed, of {names}"
        advice = "signatures are verified at publish: publish them again, signed, and disable the old versions"
        return [warn("signatures", found, advice)]
    return [ok("signatures", "all versions that must be signed are")] if required else []


async def _served(settings: Settings) -> list[SignedVersions]:
    if not_created(settings):
        return []
    database = Database(settings.effective_database_url)
    try:
        await require_compatible(database)
        async with database.operator() as session:
            return await served_by_signer(session)
    finally:
        await database.close()
