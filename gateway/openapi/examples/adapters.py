"""Example responses about adapters, their versions, aliases and imports."""

from loragate.gateway.openapi.examples.requests import BASE, NAME
from loragate.gateway.openapi.examples.tenants import LATER, LIMITS, TENANT, THEN

DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
BASE_DIGEST = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
ARMS = [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]
ADAPTER = {
    "id": "ad_7hJk3mNp5qRs",
    "object": "adapter",
    "name": NAME,
    "status": "ready",
    "latest_version": 2,
    "aliases": {"default": ARMS},
    "limits": LIMITS,
    "tags": ["team:verse", "three-lines"],
    "description": "Answers in verse.",
    "residency": "device",
    "created_at": THEN,
    "updated_at": LATER,
    "deleted_at": None,
}
IMPORT = {
    "id": "im_8kLm4nPq6rSt",
    "object": "adapter.import",
    "source": "hf://acme/haiku@" + 8 * "0f9c3",
    "name": NAME,
    "alias": "default",
    "status": "fetching",
    "bytes_done": 1048576,
    "bytes_total": 4194304,
    "version": None,
    "error": None,
    "created_at": THEN,
    "updated_at": THEN,
}
ADMIN_ADAPTER = {
    **ADAPTER,
    "tenant_id": TENANT["id"],
    "placement": "pinned",
    "held": [{"engine_id": "engine-0", "version": 2, "tier": "device", "pinned": True}],
}
VERSION = {
    "id": ADAPTER["id"],
    "object": "adapter.version",
    "name": NAME,
    "version": 2,
    "digest": DIGEST,
    "status": "ready",
    "rank": 16,
    "size_bytes": 167_832_240,
    "base_model": BASE,
    "base_digest": BASE_DIGEST,
    "residency": "host",
    "lineage": {
        "source": "upload",
        "dataset_digest": None,
        "parent_version": 1,
        "evaluation": {"accuracy": 0.93},
        "notes": "Trained on the haiku of March.",
    },
    "classifier": None,
    "signer": "acme-release",
    "reason": None,
    "created_at": LATER,
    "deleted_at": None,
}
ALIAS = {
    "id": f"{NAME}@default",
    "object": "adapter.alias",
    "name": NAME,
    "alias": "default",
    "targets": ARMS,
}
