"""The fine-tuning worker as an optional part of the server."""

import asyncio
from collections.abc import Callable

from loragate.adapter_store.ids import random_base62
from loragate.cli.optional_dependencies import INSTALL_FINETUNE, missing_finetune_packages
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import shared_metrics
from loragate.cli.supervisor.program import OptionalPart, Program, our_command
from loragate.finetune.worker.worker_pidfile import is_running

WORKER_SETTINGS = (
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
    "signatures",
    "prices",
)


def part(settings: Settings, model: str, notify: Callable[[str], None]) -> OptionalPart | None:
    """Return the worker; None if it is disabled, or, after a notification, if its packages are not installed."""
    if not settings.finetune.enabled:
        return None
    missing = missing_finetune_packages()
    if missing:
        notify(f"no fine-tuning: {', '.join(missing)} not installed ({INSTALL_FINETUNE})")
        return None
    chosen = settings.model_copy(update={"model": model})
    # A restarted worker keeps this name, so that leases of the previous process are released immediately.
    command = our_command("finetune-worker", "--name", f"serve-{random_base62(12)}")
    environment = child_environment(chosen, (*WORKER_SETTINGS, "finetune")) | shared_metrics.finetune_environment(
        settings
    )
    program = Program("fine-tune worker", command, environment)

    async def works(pid: int) -> bool:
        return await asyncio.to_thread(is_running, settings.finetune_workspace, pid)

    return OptionalPart("finetune", program, works)
