"""Where the supervisor's workers keep their counters."""

import os
import stat
import subprocess
import sys
from pathlib import Path

from loragate.cli.settings.model import FinetuneSettings, Settings, TrainerSettings
from loragate.cli.supervisor import shared_metrics, trainer
from loragate.cli.supervisor.child_commands import Programs
from loragate.gateway.observability.finetune_families import finetune_families

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def test_several_workers_start_with_an_empty_private_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, workers=2, model="any")
    for _ in range(2):
        shared_metrics.begin(settings)
        folder = Path(Programs(settings, "unix:x", 0, "127.0.0.1:0").gateway().environment[VARIABLE])
        assert list(folder.iterdir()) == [], "the counters of the last start are gone"
        assert folder.is_absolute()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "counter_1.db").touch()
    assert VARIABLE not in Programs(settings, "unix:x", 0, "127.0.0.1:0").engine("any").environment


def test_a_single_worker_needs_no_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, workers=1, model="any", finetune=FinetuneSettings(enabled=False))
    shared_metrics.begin(settings)
    assert VARIABLE not in Programs(settings, "unix:x", 0, "127.0.0.1:0").gateway().environment
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_alone_has_a_folder_for_its_metrics(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        model="any",
        finetune=FinetuneSettings(enabled=False),
        trainer=TrainerSettings(enabled=True),
    )
    shared_metrics.begin(settings)
    part = trainer.part(settings, "any")
    assert part is not None
    assert Path(part.program.environment[VARIABLE]).is_dir()


def test_the_fine_tune_worker_has_its_own_folder_that_gateways_read(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, model="any")
    shared_metrics.begin(settings)
    (folder,) = tmp_path.iterdir()
    assert shared_metrics.finetune_environment(settings) == {VARIABLE: str(folder)}
    code = """
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.training.protocol.messages import Metrics
times = iter([0.0, 2.0, 9.0])
metrics = FinetuneMetrics(lambda: next(times))
for step, loss in ((1, 3.0), (2, 1.5), (7, 0.5)):
    metrics.record_step(Metrics(step, 8, 1.0, train_loss=loss))
metrics.record_step(Metrics(7, 8, 1.0, valid_loss=0.75))
metrics.record_end("finished")
metrics.record_engine_load(0.25)
"""
    for _ in range(2):  # a worker, and the one after it
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, VARIABLE: str(folder)})
    found = {
        sample.name.removeprefix("loragate_finetune_"): sample.value
        for family in finetune_families(tmp_path, all_of_them=True)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    assert found == {
        "steps_total": 6, "step_seconds_sum": 4, "step_seconds_count": 2, "jobs_total": 2, "step": 7, "total_steps": 8,
        "train_loss": 0.5, "valid_loss": 0.75, "engine_load": 0.25,
    }  # fmt: skip
    assert not list(finetune_families(tmp_path / "without", all_of_them=True))
