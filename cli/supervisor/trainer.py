"""The trainer as an optional part of the server."""

import asyncio

from loragate.adapter_store.ids import random_base62
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import shared_metrics
from loragate.cli.supervisor.finetuning import WORKER_SETTINGS
from loragate.cli.supervisor.program import OptionalPart, Program, our_command
from loragate.finetune.worker.worker_pidfile import is_running


def part(settings: Settings, model: str) -> OptionalPart | None:
    """Return the trainer; None unless it is enabled."""
    if not settings.trainer.enabled:
        return None
    chosen = settings.model_copy(update={"model": model})
    # A restarted trainer keeps this name, so that the runs of the previous process are free immediately.
    command = our_command("trainer", "--name", f"serve-{random_base62(12)}")
    environment = child_environment(chosen, (*WORKER_SETTINGS, "trainer")) | shared_metrics.finetune_environment(
        settings
    )
    program = Program("trainer", command, environment)

    async def works(pid: int) -> bool:
        return await asyncio.to_thread(is_running, settings.trainer_workspace, pid)

    return OptionalPart("trainer", program, works)
