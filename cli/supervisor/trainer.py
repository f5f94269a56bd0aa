"""The trainer as an optional part of the server."""

import asyncio

from loragate.adapter_store.ids import random_base62
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import shared_metrics
from loragate.cli.supervisor.program import OptionalPart, Program, our_command
from loragate.finetune.worker.worker_pidfile import is_running

_SETTINGS = (
    "log_format",
    "model",
    "data_dir",
    "database_url",
    "blob_url",
    "min_free_bytes",
    "secret_key",
    "previous_secret_keys",
    "engine_target",
    "engine_targets",
    "engine_ca",
    "engine_client_cert",
    "engine_client_key",
    "engine_secret",
    "previous_engine_secrets",
    "trainer",
    "signatures",
    "prices",
)


def part(settings: Settings, model: str) -> OptionalPart | None:
    """Return the trainer; None unless it is enabled."""
    if not settings.trainer.enabled:
        return None
    chosen = settings.model_copy(update={"model": model})
    # A restarted trainer keeps this name, so that the runs of the previous process are free immediately.
    command = our_command("trainer", "--name", f"serve-{random_base62(12)}")
    environment = child_environment(chosen, _SETTINGS) | shared_metrics.finetune_environment(settings)
    program = Program("trainer", command, environment)

    async def works(pid: int) -> bool:
        return await asyncio.to_thread(is_running, settings.trainer_workspace, pid)

    return OptionalPart("trainer", program, works)
