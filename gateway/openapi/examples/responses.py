"""Examples of responses, by their type."""

from collections.abc import Mapping
from typing import Any

from loragate.gateway.objects import (
    adapters,
    admin,
    alias_metrics,
    batches,
    engines,
    files,
    fine_tuning,
    imports,
    job_events,
    keys,
    models,
    training,
    usage,
)
from loragate.gateway.objects.inference import (
    chat,
    classification,
    completions,
    embeddings,
    messages,
    ranking,
    responses,
    tokens,
)
from loragate.gateway.openapi.examples.adapters import ADAPTER, ADMIN_ADAPTER, ALIAS, IMPORT, VERSION
from loragate.gateway.openapi.examples.engines import ENGINE, ENGINE_ADAPTER
from loragate.gateway.openapi.examples.jobs import (
    ADMIN_BATCH,
    ADMIN_JOB,
    BATCH,
    CHECKPOINT,
    JOB,
    JOB_EVENT,
    TRAINING_RUN,
)
from loragate.gateway.openapi.examples.requests import BASE as _BASE
from loragate.gateway.openapi.examples.requests import NAME
from loragate.gateway.openapi.examples.stored_responses import STORED
from loragate.gateway.openapi.examples.tenants import ADMIN_KEY, KEY, LATER, TENANT, THEN

_EVENT = {
    "id": "au_2bCd4eFg6hJk",
    "object": "audit.event",
    "created_at": LATER,
    "actor": "admin_key",
    "action": "tenant.update",
    "target": f"tenant:{TENANT['id']}",
    "tenant_id": TENANT["id"],
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
    "training_tokens": 65_000,
    "training_seconds": 840,
    "computed_prompt_tokens": 92_100,
    "generated_tokens": 61_000,
    "amount": "1.7361",
    "currency": "USD",
}
_DAY = {"start": "2026-03-01T00:00:00.000Z", "end": "2026-03-02T00:00:00.000Z"}
_FIRST_TOKEN = {"mean": 61.5, "p50": 55, "p90": 84, "p95": 102, "p99": 130}
_ROW = {"object": "usage", "id": "eyJzIjoxNzcyMzIzMjAwfQ", **_DAY, **_SUMS}
_HEAD: dict[str, Any] = {"created": 1_772_357_400, "model": NAME, "system_fingerprint": "fp_60303ae22b99"}
_USAGE = {
    "prompt_tokens": 21,
    "completion_tokens": 9,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 0},
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


RESPONSES: Mapping[Any, Any] = {
    chat.ChatCompletion: {
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
        "conversation": None,
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
    messages.Message: {
        "id": "msg_5d41402abc4b2a76b9719d91",
        "type": "message",
        "role": "assistant",
        "model": NAME,
        "content": [{"type": "text", "text": "The sea hums low, and keeps the time."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 16,
            "output_tokens": 9,
        },
    },
    messages.MessageTokens: {"input_tokens": 21},
    completions.TextCompletion: {
        "id": "cmpl-5d41402abc4b2a76b9719d911017",
        "object": "text_completion",
        **_HEAD,
        "choices": [{"text": " wide and grey,", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": _USAGE,
    },
    embeddings.EmbeddingList: {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.6, -0.8]}],
        "model": NAME,
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    },
    classification.Classifications: {
        "id": "classify-5d41402abc4b2a76b9719d91",
        "object": "list",
        "created": 1767225600,
        "model": NAME,
        "labels": ["billing", "technical"],
        "data": [
            {
                "object": "classification",
                "index": 0,
                "num_classes": 2,
                "label": "billing",
                "score": 0.9,
                "probs": [0.9, 0.1],
            }
        ],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    },
    ranking.Scores: {
        "id": "score-5d41402abc4b2a76b9719d91",
        "object": "list",
        "created": 1767225600,
        "model": NAME,
        "data": [{"object": "score", "index": 0, "score": 0.9}],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    },
    ranking.Ranking: {
        "id": "rerank-5d41402abc4b2a76b9719d91",
        "object": "list",
        "model": NAME,
        "results": [{"index": 1, "relevance_score": 0.9, "document": {"text": "a wave"}}],
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    },
    tokens.Tokens: {"count": 3, "max_model_len": 8192, "tokens": [464, 5417, 318], "token_strs": None},
    tokens.DetokenizedPrompt: {"prompt": "The sea is"},
    **STORED,
    models.Model: _ADAPTER_MODEL,
    models.DeletedModel: {"id": JOB["fine_tuned_model"], "object": "model", "deleted": True},
    models.ModelList: {
        "object": "list",
        "data": [{**_ADAPTER_MODEL, "id": _BASE, "owned_by": "loragate", "parent": None}, _ADAPTER_MODEL],
    },
    adapters.Adapter: ADAPTER,
    adapters.AdapterList: _page(ADAPTER),
    adapters.AdapterVersion: VERSION,
    adapters.AdapterVersionList: _page(VERSION, "version"),
    adapters.Alias: ALIAS,
    adapters.AliasList: _page(ALIAS),
    alias_metrics.AliasMetrics: {
        "id": f"{NAME}@default",
        "object": "adapter.alias.metrics",
        "name": NAME,
        "alias": "default",
        "start": THEN,
        "end": LATER,
        "targets": [
            {
                "version": 1,
                "weight": 90,
                "requests": 903,
                "errors": 1,
                "prompt_tokens": 40_120,
                "completion_tokens": 15_960,
                "ttft_ms": _FIRST_TOKEN,
            },
        ],
    },
    adapters.DeletedAdapter: {"id": ADAPTER["id"], "object": "adapter", "deleted": True, "name": NAME},
    adapters.DeletedAlias: {
        "id": ADAPTER["id"],
        "object": "adapter.alias",
        "deleted": True,
        "name": NAME,
        "alias": "canary",
    },
    adapters.MergedSize: {"object": "adapter.version.merged", "size_bytes": 16_060_540_928},
    imports.AdapterImport: IMPORT,
    imports.AdapterImportList: _page(IMPORT),
    files.File: _FILE,
    files.FileList: _page(_FILE),
    files.DeletedFile: {"id": _FILE["id"], "object": "file", "deleted": True},
    files.Upload: _UPLOAD,
    files.UploadPart: _PART,
    files.UploadPartList: _page(_PART),
    admin.Tenant: TENANT,
    admin.TenantList: _page(TENANT),
    keys.ApiKey: KEY,
    keys.ApiKeyList: _page(KEY),
    keys.AdminKey: ADMIN_KEY,
    keys.AdminKeyList: _page(ADMIN_KEY),
    keys.NewAdminKey: {**ADMIN_KEY, "last_used_at": None, "secret": "lg-8vBn2LsTqR4c-<shown this one time>"},
    keys.NewApiKey: {**KEY, "last_used_at": None, "secret": "lg-3kTz9QbW1xYd-<shown this one time>"},
    keys.DeletedObject: {"id": TENANT["id"], "object": "tenant", "deleted": True},
    admin.AdminAdapter: ADMIN_ADAPTER,
    admin.AdminAdapterList: _page(ADMIN_ADAPTER),
    admin.AuditEventList: _page(_EVENT),
    engines.Engine: ENGINE,
    engines.EngineList: _page(ENGINE),
    engines.EngineAdapterList: _page(ENGINE_ADAPTER),
    batches.Batch: BATCH,
    batches.BatchList: _page(BATCH),
    batches.AdminBatch: ADMIN_BATCH,
    batches.AdminBatchList: _page(ADMIN_BATCH),
    training.TrainingRunList: _page(TRAINING_RUN),
    training.TrainingRunDetails: TRAINING_RUN | {"losses": [{"seq": 1, "loss": 350.2, "tokens": 128}]},
    training.AdminTrainingRun: TRAINING_RUN | {"tenant_id": TENANT["id"]},
    training.AdminTrainingRunList: _page(TRAINING_RUN | {"tenant_id": TENANT["id"]}),
    fine_tuning.FineTuningJob: JOB,
    fine_tuning.JobList: _page(JOB),
    fine_tuning.AdminJob: ADMIN_JOB,
    fine_tuning.AdminJobList: _page(ADMIN_JOB),
    job_events.EventList: _page(JOB_EVENT),
    job_events.CheckpointList: _page(CHECKPOINT),
    usage.UsageList: {**_page(_ROW), **_DAY, "totals": _SUMS},
    usage.Service: {
        "object": "usage.service",
        **_DAY,
        "requests": 1420,
        "errors": 3,
        "ttft_ms": _FIRST_TOKEN,
        "rejected": {"rate_limited": 12, "overloaded": 0},
    },
    engines.Health: {"status": "ok"},
    engines.Version: {"version": "1.0.0"},
    engines.Readiness: {
        "status": "ready",
        "parts": {"gateway": "ok", "database": "ok", "engine": "ok", "finetune": "degraded"},
        "degraded": {"finetune": "ended with signal SIGKILL"},
    },
    keys.Caller: {
        "object": "caller",
        "role": "tenant",
        "tenant": {"id": TENANT["id"], "name": TENANT["name"]},
        "key_id": KEY["id"],
        "scopes": ["all"],
        "merged_exports": False,
    },
}
