"""The tenant that the first start creates, so that a new installation has a key that is not the operator's."""

import logging

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
        if await admin.tenants.list(limit=1):
            log.warning(
                "first_tenant is ignored, because there are tenants already. `loragate keys create %s` creates a key, "
                "if there is no such tenant after `loragate tenants create %s`",
                *[settings.first_tenant] * 2,
            )
            return
        tenant = await admin.tenants.create(settings.first_tenant, limits=settings.limits.tenant_limits)
        new = await admin.keys.create(tenant.id, name="first key")
        # Before the commit, after which the key could not be read again.
        write_private(draft, f"{new.secret}\n".encode())
    draft.replace(file)
    print(f"API key of the tenant {settings.first_tenant}: in {file}", flush=True)
