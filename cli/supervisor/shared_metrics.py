"""Where several gateway workers keep their counters, so that a scrape of any of them tells of all; and where the
fine-tune worker keeps its own, which any gateway tells too."""

import shutil
from pathlib import Path

from loragate.cli.settings.model import Settings
from loragate.gateway.observability.finetune_families import FOLDER as _FINETUNE

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's
_FOLDER = "gateway-metrics"


def begin(settings: Settings) -> None:
    """Empty folders, for gateways if there will be several: their counters begin with the server."""
    wanted = {_FOLDER: settings.workers > 1, _FINETUNE: settings.finetune.enabled}
    for name, is_wanted in wanted.items():
        shutil.rmtree(_folder(settings, name), ignore_errors=True)
        if is_wanted:
            _folder(settings, name).mkdir(mode=0o700)


def environment(settings: Settings) -> dict[str, str]:
    """What tells a worker of the folder; a single one keeps its numbers in memory."""
    return {_VARIABLE: str(_folder(settings, _FOLDER))} if settings.workers > 1 else {}


def finetune_environment(settings: Settings) -> dict[str, str]:
    """The same for the fine-tune worker."""
    return {_VARIABLE: str(_folder(settings, _FINETUNE))}


def _folder(settings: Settings, name: str) -> Path:
    return settings.data_dir.resolve() / name
