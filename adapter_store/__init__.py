"""Tenants, keys, adapters, versions, aliases and their bytes.

Start with `store.Store`. A request walks through `authentication` (whose key?), `tenancy` (a session that
sees one tenant's rows only), `routing` (which version?) and `blobs` (its bytes); an upload through `staging`
(checked and durable) and `publishing` (numbered and visible). What requests used is written by
`usage_settlement` and asked for through `usage`.
"""

from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.store import Store

__all__ = ["Store", "upgrade"]
