"""The schema as SQLAlchemy models and column types. Only Alembic creates it (`loragate.migrations`).

Tenant-owned tables lead their primary key with `tenant_id`, and every foreign key between them carries it, so that no
row can refer to another tenant's row even if the code above has an error. Importing one table imports all, so that what
reads the metadata, as the tenants' filter does, finds every table.
"""

from loragate.adapter_store.tables import (
    adapters,
    admin_keys,
    audit,
    batches,
    blobs,
    engines,
    files,
    installation,
    jobs,
    recovery,
    tenants,
    training,
    usage,
)

__all__ = [
    "adapters",
    "admin_keys",
    "audit",
    "batches",
    "blobs",
    "engines",
    "files",
    "installation",
    "jobs",
    "recovery",
    "tenants",
    "training",
    "usage",
]
