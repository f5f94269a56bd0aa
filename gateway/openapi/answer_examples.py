"""Examples of answers, by their shape."""

from collections.abc import Mapping
from typing import Any

from loragate.gateway.openapi.job_examples import ADMIN_JOB, CHECKPOINT, JOB, JOB_EVENT
from loragate.gateway.openapi.request_examples import BASE as _BASE
from loragate.gateway.openapi.request_examples import NAME
from loragate.gateway.openapi.shapes import (
    adapters,
    admin,
    engines,
    files,
    fine_tuning,
    health,
    imports,
    inference,
    responses,
    usage,
    whoami,
)

_DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_BASE_DIGEST = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
_THEN, _LATER = "2026-03-01T09:30:00.000Z", "2026-03-02T10:00:00.000Z"

_LIMITS = {
    "requests_per_minute": 60,
    "tokens_per_minute": None,
    "max_concurrency": 8,
    "tokens_per_day": None,
    "tokens_per_month": None,
}
_TENANT = {
    "id": "tn_4fGh2kLmN8pQ",
    "object": "tenant",
    "name": "acme",
    "weight": 2.0,
    "limits": {
        **_LIMITS,
        "max_adapters": 20,
        "max_storage_bytes": None,
        "max_adapter_rank": 64,
        "max_unfinished_jobs": 4,
    },
    "created_at": _THEN,
    "updated_at": _LATER,
}
_KEY = {
    "id": "3kTz9QbW1xYd",
    "object": "api_key",
    "tenant_id": _TENANT["id"],
    "name": "backend",
    "scopes": ["inference"],
    "limits": _LIMITS,
    "expires_at": None,
    "revoked_at": None,
    "rotated_from": None,
    "last_used_at": _LATER,
    "created_at": _THEN,
}
_ARMS = [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]
_ADAPTER = {
    "id": "ad_7hJk3mNp5qRs",
    "object": "adapter",
    "name": NAME,
    "status": "ready",
    "latest_version": 2,
    "aliases": {"default": _ARMS},
    "limits": _LIMITS,
    "tags": ["team:verse", "three-lines"],
    "description": "Answers in verse.",
    "residency": "device",
    "created_at": _THEN,
    "updated_at": _LATER,
    "deleted_at": None,
}
_IMPORT = {
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
    "created_at": _THEN,
    "updated_at": _THEN,
}
_ADMIN_ADAPTER = {
    **_ADAPTER,
    "tenant_id": _TENANT["id"],
    "keep": "device",
    "held": [{"engine_id": "engine-0", "version": 2, "tier": "device", "pinned": True}],
}
_VERSION = {
    "id": _ADAPTER["id"],
    "object": "adapter.version",
    "name": NAME,
    "version": 2,
    "digest": _DIGEST,
    "status": "ready",
    "rank": 16,
    "size_bytes": 167_832_240,
    "base_model": _BASE,
    "base_digest": _BASE_DIGEST,
    "residency": "host",
    "lineage": {
        "source": "upload",
        "dataset_digest": None,
        "parent_version": 1,
        "evaluation": {"accuracy": 0.93},
        "notes": "Trained on the haiku of March.",
    },
    "reason": None,
    "created_at": _LATER,
    "deleted_at": None,
}
_ALIAS = {
    "id": f"{NAME}@default",
    "object": "adapter.alias",
    "name": NAME,
    "alias": "default",
    "targets": _ARMS,
}
_EVENT = {
    "id": "au_2bCd4eFg6hJk",
    "object": "audit.event",
    "created_at": _LATER,
    "actor": "admin_key",
    "action": "tenant.update",
    "target": f"tenant:{_TENANT['id']}",
    "tenant_id": _TENANT["id"],
    "before": {"weight": 1.0},
    "after": {"weight": 2.0},
    "request_id": "req_5d41402abc4b2a76b9719d911017c592",
}
_SUMS = {
    "requests": 1250,
    "prompt_tokens": 482_300,
    "completion_tokens": 96_410,
    "total_tokens": 578_710,
    "cached_tokens": 120_000,
    "amount": "1.7361",
    "currency": "USD",
}
_DAY = {"start": "2026-03-01T00:00:00.000Z", "end": "2026-03-02T00:00:00.000Z"}
_FIRST_TOKEN = {"mean": 61.5, "p50": 55, "p90": 84, "p95": 102, "p99": 130}
_ROW = {"object": "usage", "id": "eyJzIjoxNzcyMzIzMjAwfQ", **_DAY, **_SUMS}
_RESIDENT = {
    "id": "a1b2c3d4e5f6",
    "tenant_id": _TENANT["id"],
    "digest": _DIGEST,
    "versions": [{"name": NAME, "version": 2}],
    "slot": 0,
    "running": 3,
    "pinned": False,
}
_ENGINE = {
    "id": "engine-0",
    "object": "engine",
    "state": "ready",
    "model": _BASE,
    "base_digest": _BASE_DIGEST,
    "device": "cuda:0",
    "dtype": "bfloat16",
    "max_model_len": 8192,
    "notes": [],
    "started_at": _THEN,
    "batch": {"running": 12},
    "queue": {"waiting": 2, "waiting_for_adapter": 1},
    "tenants": [{"tenant_id": _TENANT["id"], "name": _TENANT["name"], "running": 12, "waiting": 2}],
    "kv_blocks": {"used": 5120, "total": 20_480},
    "adapter_slots": {"used": 7, "total": 16},
    "adapter_bytes": {
        "device": {"used": 1_174_405_120, "total": 4_294_967_296},
        "host": {"used": 2_348_810_240, "total": 17_179_869_184},
        "disk": {"used": 2_348_810_240, "total": 107_374_182_400},
    },
    "step_seconds": {"steps": 1000, "p50": 0.011, "p90": 0.013, "p99": 0.021},
    "residents": [_RESIDENT],
}
_ENGINE_ADAPTER = {
    **{name: _RESIDENT[name] for name in ("id", "tenant_id", "digest", "versions")},
    "object": "engine.adapter",
    "requests": 1250,
    "prompt_tokens": 482_300,
    "generated_tokens": 96_410,
    "mean_queue_seconds": 0.004,
    "mean_first_token_seconds": 0.05,
    "loads": 2,
    "residency": "device",
}
_HEAD: dict[str, Any] = {"created": 1_772_357_400, "model": NAME, "system_fingerprint": "fp_60303ae22b99"}
_USAGE = {
    "prompt_tokens": 21,
    "completion_tokens": 9,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 16},
}
_ADAPTER_MODEL = {"id": NAME, "object": "model", "created": 1_772_357_400, "owned_by": "tenant", "parent": _BASE}

_FILE = {
    "id": "file-7hJk3mNp5qRs1tUv9wXy2zAb",
    "object": "file",
    "bytes": 167_832_240,
    "created_at": 1_772_357_400,
    "expires_at": 1_772_443_800,
    "filename": "adapter_model.safetensors",
    "purpose": "adapter",
    "status": "processed",
    "open_until": None,
}
_UPLOAD = {
    "id": "upload_3kTz9QbW1xYd5eFg6hJk",
    "object": "upload",
    "bytes": _FILE["bytes"],
    "created_at": 1_772_357_300,
    "expires_at": 1_772_361_000,
    "filename": _FILE["filename"],
    "purpose": "adapter",
    "mime_type": "application/octet-stream",
    "status": "completed",
    "file": _FILE,
}
_PART = {
    "id": "part_4fGh2kLmN8pQ6rStU0vW",
    "object": "upload.part",
    "bytes": 64 << 20,
    "created_at": 1_772_357_350,
    "upload_id": _UPLOAD["id"],
}


def _page(item: Mapping[str, Any], cursor: str = "id") -> dict[str, Any]:
    ids = {"first_id": str(item[cursor]), "last_id": str(item[cursor])}
    return {"object": "list", "data": [item], "has_more": False, **ids}


ANSWERS: Mapping[Any, Any] = {
    inference.ChatCompletion: {
        "id": "chatcmpl-5d41402abc4b2a76b9719d911017",
        "object": "chat.completion",
        **_HEAD,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "The sea hums low, and keeps the time.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE,
    },
    responses.ResponseObject: {
        "id": "resp_5d41402abc4b2a76b9719d911017c592",
        "object": "response",
        "created_at": _HEAD["created"],
        "completed_at": _HEAD["created"] + 1,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "You answer in verse.",
        "max_output_tokens": 64,
        "metadata": {},
        "model": NAME,
        "output": [
            {
                "id": "msg_7d793037a0760186574b0282f2f435e7",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {
                        "type": "output_text",
                        "text": "The sea hums low, and keeps the time.",
                        "annotations": [],
                        "logprobs": [],
                    }
                ],
            }
        ],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 21,
            "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 30,
        },
        "user": None,
    },
    inference.TextCompletion: {
        "id": "cmpl-5d41402abc4b2a76b9719d911017",
        "object": "text_completion",
        **_HEAD,
        "choices": [{"text": " wide and grey,", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": _USAGE,
    },
    inference.EmbeddingList: {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.6, -0.8]}],
        "model": NAME,
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    },
    inference.Model: _ADAPTER_MODEL,
    inference.DeletedModel: {"id": JOB["fine_tuned_model"], "object": "model", "deleted": True},
    inference.ModelList: {
        "object": "list",
        "data": [{**_ADAPTER_MODEL, "id": _BASE, "owned_by": "loragate", "parent": None}, _ADAPTER_MODEL],
    },
    adapters.Adapter: _ADAPTER,
    adapters.AdapterList: _page(_ADAPTER),
    adapters.AdapterVersion: _VERSION,
    adapters.AdapterVersionList: _page(_VERSION, "version"),
    adapters.Alias: _ALIAS,
    adapters.AliasList: _page(_ALIAS),
    adapters.AliasMetrics: {
        "id": f"{NAME}@default",
        "object": "adapter.alias.metrics",
        "name": NAME,
        "alias": "default",
        "start": _THEN,
        "end": _LATER,
        "arms": [
            {
                "version": 1,
                "weight": 90,
                "requests": 903,
                "errors": 1,
                "prompt_tokens": 40_120,
                "completion_tokens": 15_960,
                "first_token_ms": _FIRST_TOKEN,
            },
        ],
    },
    adapters.DeletedAdapter: {"id": _ADAPTER["id"], "object": "adapter", "deleted": True, "name": NAME},
    adapters.DeletedAlias: {
        "id": _ADAPTER["id"],
        "object": "adapter.alias",
        "deleted": True,
        "name": NAME,
        "alias": "canary",
    },
    imports.AdapterImport: _IMPORT,
    imports.AdapterImportList: _page(_IMPORT),
    files.File: _FILE,
    files.FileList: _page(_FILE),
    files.DeletedFile: {"id": _FILE["id"], "object": "file", "deleted": True},
    files.Upload: _UPLOAD,
    files.UploadPart: _PART,
    files.UploadPartList: _page(_PART),
    admin.Tenant: _TENANT,
    admin.TenantList: _page(_TENANT),
    admin.ApiKey: _KEY,
    admin.ApiKeyList: _page(_KEY),
    admin.NewApiKey: {**_KEY, "last_used_at": None, "secret": "lg-3kTz9QbW1xYd-<shown this one time>"},
    admin.DeletedThing: {"id": _TENANT["id"], "object": "tenant", "deleted": True},
    admin.AdminAdapter: _ADMIN_ADAPTER,
    admin.AdminAdapterList: _page(_ADMIN_ADAPTER),
    admin.AuditEventList: _page(_EVENT),
    engines.Engine: _ENGINE,
    engines.EngineList: _page(_ENGINE),
    engines.EngineAdapterList: _page(_ENGINE_ADAPTER),
    fine_tuning.FineTuningJob: JOB,
    fine_tuning.JobList: _page(JOB),
    fine_tuning.AdminJob: ADMIN_JOB,
    fine_tuning.AdminJobList: _page(ADMIN_JOB),
    fine_tuning.EventList: _page(JOB_EVENT),
    fine_tuning.CheckpointList: _page(CHECKPOINT),
    usage.UsageList: {**_page(_ROW), **_DAY, "totals": _SUMS},
    usage.Service: {
        "object": "usage.service",
        **_DAY,
        "requests": 1420,
        "errors": 3,
        "first_token_ms": _FIRST_TOKEN,
        "turned_away": {"over_limit": 12, "overloaded": 0},
    },
    health.Health: {"status": "ok"},
    health.Readiness: {
        "status": "ready",
        "parts": {"gateway": "ok", "database": "ok", "engine": "ok", "finetune": "degraded"},
        "degraded": {"finetune": "ended with signal SIGKILL"},
    },
    whoami.Caller: {
        "object": "caller",
        "role": "tenant",
        "tenant": {"id": _TENANT["id"], "name": _TENANT["name"]},
        "key_id": _KEY["id"],
        "scopes": ["all"],
    },
}
