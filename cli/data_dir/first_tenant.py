"""The tenant that the first start creates, so that a new installation has a key that is not the operator's."""

import logging

from loragate.adapter_store.database.page import MAX_LIMIT
from loragate.adapter_store.store import Store
from loragate.cli.data_dir.private_file import draft_of, write_private
from loragate.cli.settings.model import Settings

log = logging.getLogger(__name__)

FILE_NAME = "first-tenant.key"


async def create_first_tenant(store: Store, settings: Settings) -> None:
    """Create the tenant of the settings, with a key in a file of the data directory, if there never was a tenant.

    The key is not printed, because what a service prints is often kept in a log.
    """
    file = settings.data_dir / FILE_NAME
    if settings.first_tenant is None or file.exists():
        return
    draft = draft_of(file)
    async with store.admin(write=True) as admin:
        tenants = await admin.tenants.list(limit=MAX_LIMIT)
        if tenants:
            known = {tenant.name for tenant in tenants}
            if settings.first_tenant not in known and not tenants.has_more:
                log.warning(
                    "first_tenant: there are other tenants already, so %s is not created. Create it and a key: "
                    "`loragate tenants create %s`, then `loragate keys create %s`",
                    *[settings.first_tenant] * 3,
                )
            return
        tenant = await admin.tenants.create(settings.first_tenant, limits=settings.limits.tenant_limits)
        new = await admin.keys.create(tenant.id, name="first key")
        # Before the commit, after which the key could not be read again.
        write_private(draft, f"{new.secret}\n".encode())
    draft.replace(file)
    print(f"API key of the tenant {settings.first_tenant}: in {file}", flush=True)
