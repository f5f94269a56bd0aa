"""Where several gateway workers keep their counters, so that a scrape of any of them tells of all."""

import shutil
from pathlib import Path

from loragate.cli.settings import Settings

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's
_FOLDER = "gateway-metrics"


def begin(settings: Settings) -> None:
    """An empty folder, if there will be several: their counters begin with the server."""
    shutil.rmtree(_folder(settings), ignore_errors=True)
    if settings.workers > 1:
        _folder(settings).mkdir(mode=0o700)


def environment(settings: Settings) -> dict[str, str]:
    """What tells a worker of the folder; a single one keeps its numbers in memory."""
    return {_VARIABLE: str(_folder(settings))} if settings.workers > 1 else {}


def _folder(settings: Settings) -> Path:
    return settings.data_dir.resolve() / _FOLDER
