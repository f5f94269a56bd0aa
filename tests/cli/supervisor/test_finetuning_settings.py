"""Missing requirements of fine-tuning are reported before a worker starts, and no server waits for them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from loragate.adapter_store.limits import TenantLimits
from loragate.cli import optional_dependencies
from loragate.cli.errors import CliError
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.standalone import finetune_worker as finetuning
from loragate.cli.standalone.finetune_worker import service_config
from loragate.cli.supervisor.finetuning import part
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings

VARIABLE = "LORAGATE_FINETUNE__REPORT_TO"


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def find(name: str) -> Any:
        return None if name in missing else find_spec("json")

    for module in (finetuning, optional_dependencies):
        monkeypatch.setattr(module, "find_spec", find)


def settings(**finetune: Any) -> Settings:
    return load(model="a/model", data_dir=Path("data"), finetune=finetune)


def rejected(chosen: Settings) -> str:
    with pytest.raises(CliError) as caught:
        service_config(chosen, None)
    assert caught.value.status == 2
    return caught.value.message


def test_without_the_extra_a_server_continues_and_a_worker_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    without(monkeypatch, "trl", "bitsandbytes")
    assert part(settings(), "a/model", said.append) is None
    assert said == ["no fine-tuning: trl, bitsandbytes not installed (pip install 'loragate[finetune]')"]
    assert rejected(settings()) == "training needs trl, bitsandbytes: pip install 'loragate[finetune]'"
    said.clear()
    assert part(settings(enabled=False), "a/model", said.append) is None
    assert said == []


def test_a_report_target_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "mlflow", "wandb")
    assert rejected(settings(report_to=["tensorboard", "mlflow"])) == (
        "LORAGATE_FINETUNE__REPORT_TO: mlflow is not installed"
    )
    assert service_config(settings(report_to=["tensorboard"]), None).trainer.report_to == ("tensorboard",)
    with pytest.raises(CliError, match=r"^--report-to: input should be 'tensorboard', 'mlflow' or 'wandb'$"):
        settings(report_to=["elsewhere"])


@pytest.mark.parametrize(
    ("text", "names"),
    [("mlflow", ["mlflow"]), ("mlflow, wandb", ["mlflow", "wandb"]), ('["wandb"]', ["wandb"]), ("", []), ("[]", [])],
)
def test_report_targets_are_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, names: list[str]
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    chosen = load()
    assert chosen.finetune.report_to == tuple(names)
    monkeypatch.setenv(VARIABLE, child_environment(chosen, ["finetune"])[VARIABLE])
    assert load().finetune == chosen.finetune


@pytest.mark.parametrize("text", ["elsewhere", '["elsewhere"]', "mlflow,elsewhere", '["mlflow"', "[7]"])
def test_unknown_report_targets_are_rejected_by_the_settings_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(CliError, match=rf"^{VARIABLE}: "):
        load()


def test_a_workers_settings_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    chosen = settings(nice=3, threads=2, device="cuda:1", max_running_per_tenant=4, max_workspace_bytes=7)
    config = service_config(chosen, "w1")
    assert (config.name, config.nice) == ("w1", 3)
    assert config.trainer == TrainerSettings(2, "cuda:1")
    assert (config.max_jobs_per_tenant, config.max_workspace_bytes) == (4, 7)
    assert config.workspace == Path("data").absolute() / "finetune"
    idle = [service_config(each, None).trainer.idle_priority for each in (settings(), settings(device="cuda:1"))]
    assert idle == [True, False], "on its own device it does not slow down serving"


def test_a_servers_worker_has_its_prices_disk_floor_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    price = {"prompt": "1", "completion": "2", "training": "3"}
    chosen = load(data_dir=Path("data"), prices=[price], min_free_bytes=7, secret_key="s" * 32, engine_secret="t" * 32)
    worker = part(chosen, "a/model", lambda text: None)
    assert worker is not None
    for name, value in worker.program.environment.items():
        monkeypatch.setenv(name, value)
    its_own = load()
    assert its_own.prices == chosen.prices
    assert its_own.min_free_bytes == 7
    assert service_config(its_own, None).secret_key == b"s" * 32
    assert service_config(its_own, None).engine_secret == "t" * 32


def test_new_tenants_have_32_unfinished_jobs_by_default_and_unlimited_is_possible() -> None:
    assert load().limits.tenant_limits.max_unfinished_jobs == 32
    assert load(limits={"max_unfinished_jobs": "unlimited"}).limits.tenant_limits.max_unfinished_jobs is None
    assert TenantLimits().max_unfinished_jobs is None
