"""Example responses about fine-tuning jobs and batches."""

from typing import Any

from loragate.gateway.openapi.examples.requests import BASE, FILE
from loragate.gateway.openapi.examples.tenants import LATER, THEN

_TENANT = "tn_4fGh2kLmN8pQ"
_OPENAIS = {"n_epochs": 3, "batch_size": 8, "learning_rate_multiplier": 1.0}
JOB: dict[str, Any] = {
    "id": "ftjob-4fGh2kLmN8pQ6rStU0vW2xYz",
    "object": "fine_tuning.job",
    "created_at": 1_772_357_400,
    "error": None,
    "estimated_finish": None,
    "evaluation": None,
    "fine_tuned_model": f"ft:{BASE}:acme:support:U0vW2xYz",
    "finished_at": 1_772_361_000,
    "hyperparameters": _OPENAIS,
    "integrations": [],
    "metadata": {"team": "a"},
    "method": {
        "type": "supervised",
        "supervised": {
            "hyperparameters": {
                **_OPENAIS,
                "lora_rank": 16,
                "lora_alpha": 32,
                "lora_dropout": 0.0,
                "use_rslora": False,
                "use_dora": False,
                "alora_invocation_tokens": None,
                "target_modules": "all-linear",
                "quantization": "nf4",
                "max_length": 2048,
                "packing": False,
                "lr_scheduler": "cosine",
                "warmup_ratio": 0.05,
                "weight_decay": 0.0,
                "max_grad_norm": 1.0,
                "early_stopping_patience": None,
                "streaming": False,
                "n_steps": None,
            }
        },
    },
    "model": BASE,
    "organization_id": _TENANT,
    "progress": {"step": 75, "total_steps": 75},
    "result_files": ["file-9wXy2zAb4cDe6fGh8jKl0mNp"],
    "seed": 7,
    "start_version": None,
    "status": "succeeded",
    "trained_tokens": 48_210,
    "training_file": FILE,
    "validation_file": None,
}
ADMIN_JOB = {**JOB, "tenant_id": _TENANT}
JOB_EVENT = {
    "id": "ftevent-4fGh2kLmN8pQ6rStU0vW2xYz-77",
    "object": "fine_tuning.job.event",
    "created_at": 1_772_360_990,
    "level": "info",
    "message": "Step 75/75, training loss=0.4410",
    "type": "metrics",
    "data": {"step": 75, "total_steps": 75, "train_loss": 0.441, "train_mean_token_accuracy": 0.91},
}
CHECKPOINT = {
    "id": "ftckpt-6rStU0vW2xYz4aBc8dEf0gHi",
    "object": "fine_tuning.job.checkpoint",
    "created_at": 1_772_360_000,
    "fine_tuned_model_checkpoint": f"{JOB['fine_tuned_model']}:ckpt-step-50",
    "fine_tuning_job_id": JOB["id"],
    "metrics": {"step": 50, "train_loss": 0.52},
    "step_number": 50,
}
BATCH = {
    "id": "batch_4fGh2kLmN8pQ6rStU0vW2xYz",
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "errors": None,
    "input_file_id": FILE,
    "completion_window": "24h",
    "status": "in_progress",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": 1_772_357_400,
    "in_progress_at": 1_772_357_402,
    "expires_at": 1_772_443_800,
    "finalizing_at": None,
    "completed_at": None,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 1200, "completed": 640, "failed": 2},
    "usage": {
        "input_tokens": 51_840,
        "input_tokens_details": {"cached_tokens": 20_480},
        "output_tokens": 12_230,
        "total_tokens": 64_070,
    },
    "metadata": {"team": "a"},
    "waits_for": None,
    "waits_until": None,
}
_SHOWN = (
    "id",
    "object",
    "endpoint",
    "completion_window",
    "status",
    "errors",
    "created_at",
    "in_progress_at",
    "expires_at",
    "request_counts",
    "usage",
    "waits_for",
    "waits_until",
)
ADMIN_BATCH = {name: BATCH[name] for name in _SHOWN} | {
    "tenant_id": _TENANT,
    "key_id": "7xK2mQ9vB4nR8sWc",
    "held": True,
    "finished_at": None,
}

TRAINING_RUN = {
    "id": "ts_4kTz9QbW1xYdV7mN2pRs8aLc:train:0",
    "object": "training_run",
    "session_id": "ts_4kTz9QbW1xYdV7mN2pRs8aLc",
    "status": "active",
    "rank": 16,
    "steps": 40,
    "trained_tokens": 81920,
    "loaded": True,
    "created_at": THEN,
    "used_at": LATER,
}
