"""Tenants, keys, adapters, versions, aliases and their bytes.

Start with `store.Store`. A request goes through `auth.authentication` (whose key is it?), `database.tenant_session`
(a session that sees one tenant's rows only), `adapters.routing` (which version?) and `blobs` (its bytes). An upload
goes through `publishing.staging` (checked and durable) and `publishing.registration` (numbered and visible).
`usage.settlement` writes what requests used, and `usage.repository` reads it.
"""
