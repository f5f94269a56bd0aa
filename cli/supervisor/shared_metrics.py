"""The folders for counters shared between processes: those of the gateway workers, of which any can be scraped for all,
and those of the fine-tuning worker and the trainer, which the gateways expose."""

import shutil
from pathlib import Path

from loragate.cli.settings.model import Settings
from loragate.gateway.observability.finetune_families import FOLDER as _FINETUNE

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's
_FOLDER = "gateway-metrics"


def begin(settings: Settings) -> None:
    """Create empty folders where they are needed, so that counters start with the server."""
    wanted = {_FOLDER: settings.workers > 1, _FINETUNE: settings.finetune.enabled or settings.trainer.enabled}
    for name, is_wanted in wanted.items():
        shutil.rmtree(_folder(settings, name), ignore_errors=True)
        if is_wanted:
            _folder(settings, name).mkdir(mode=0o700)


def environment(settings: Settings) -> dict[str, str]:
    """Return the variable that names the gateways' folder; a single gateway keeps its counters in memory."""
    return {_VARIABLE: str(_folder(settings, _FOLDER))} if settings.workers > 1 else {}


def finetune_environment(settings: Settings) -> dict[str, str]:
    """Return the variable that names the folder of the fine-tuning worker and the trainer."""
    return {_VARIABLE: str(_folder(settings, _FINETUNE))}


def _folder(settings: Settings, name: str) -> Path:
    return settings.data_dir.resolve() / name
