"""Example responses about engines."""

from loragate.gateway.openapi.examples.adapters import BASE_DIGEST, DIGEST
from loragate.gateway.openapi.examples.requests import BASE, NAME
from loragate.gateway.openapi.examples.tenants import TENANT, THEN

RESIDENT = {
    "id": "a1b2c3d4e5f6",
    "tenant_id": TENANT["id"],
    "digest": DIGEST,
    "versions": [{"name": NAME, "version": 2}],
    "slot": 0,
    "running": 3,
    "pinned": False,
}
ENGINE = {
    "id": "engine-0",
    "object": "engine",
    "state": "ready",
    "reason": None,
    "target": "gpu-1:50100",
    "requests": 14,
    "model": BASE,
    "base_digest": BASE_DIGEST,
    "device": "cuda:0",
    "dtype": "bfloat16",
    "max_model_len": 8192,
    "notes": [],
    "started_at": THEN,
    "batch": {"running": 12},
    "queue": {"waiting": 2, "waiting_for_adapter": 1},
    "tenants": [{"tenant_id": TENANT["id"], "name": TENANT["name"], "running": 12, "waiting": 2}],
    "kv_blocks": {"used": 5120, "total": 20_480},
    "adapter_slots": {"used": 7, "total": 16},
    "adapter_bytes": {
        "device": {"used": 1_174_405_120, "total": 4_294_967_296},
        "host": {"used": 2_348_810_240, "total": 17_179_869_184},
        "disk": {"used": 2_348_810_240, "total": 107_374_182_400},
    },
    "step_seconds": {"steps": 1000, "p50": 0.011, "p90": 0.013, "p99": 0.021},
    "residents": [RESIDENT],
}
ENGINE_ADAPTER = {
    **{name: RESIDENT[name] for name in ("id", "tenant_id", "digest", "versions")},
    "object": "engine.adapter",
    "requests": 1250,
    "prompt_tokens": 482_300,
    "generated_tokens": 96_410,
    "mean_queue_seconds": 0.004,
    "mean_time_to_first_token_seconds": 0.05,
    "loads": 2,
    "residency": "device",
}
