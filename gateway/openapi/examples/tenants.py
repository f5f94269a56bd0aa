"""Example responses about tenants and their keys."""

THEN, LATER = "2026-03-01T09:30:00.000Z", "2026-03-02T10:00:00.000Z"
LIMITS = {
    "requests_per_minute": 60,
    "tokens_per_minute": None,
    "max_concurrency": 8,
    "tokens_per_day": None,
    "tokens_per_month": None,
}
TENANT = {
    "id": "tn_4fGh2kLmN8pQ",
    "object": "tenant",
    "name": "acme",
    "weight": 2.0,
    "limits": {
        **LIMITS,
        "max_adapters": 20,
        "max_storage_bytes": None,
        "max_objects": 100_000,
        "max_adapter_rank": 64,
        "max_unfinished_jobs": 4,
        "max_job_training_tokens": 50_000_000,
        "max_job_training_seconds": None,
        "training_tokens_per_minute": 100_000,
        "training_tokens_per_day": None,
        "training_tokens_per_month": 500_000_000,
        "training_seconds_per_day": 14_400,
        "training_seconds_per_month": None,
        "max_unfinished_batches": 32,
        "max_batch_lines": None,
        "max_batch_bytes": None,
        "batch_tokens_per_day": 10_000_000,
        "max_training_sessions": 32,
        "max_training_runs": 64,
        "max_stored_responses": 100000,
    },
    "signers": ["acme-release"],
    "store_responses_by_default": False,
    "created_at": THEN,
    "updated_at": LATER,
}
KEY = {
    "id": "3kTz9QbW1xYd",
    "object": "api_key",
    "tenant_id": TENANT["id"],
    "name": "backend",
    "scopes": ["inference"],
    "limits": LIMITS,
    "expires_at": None,
    "revoked_at": None,
    "rotated_from": None,
    "last_used_at": LATER,
    "created_at": THEN,
}
ADMIN_KEY = {
    "id": "8vBn2LsTqR4c",
    "object": "admin_key",
    "name": "deploy pipeline",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": LATER,
    "created_at": THEN,
}
