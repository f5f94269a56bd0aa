"""The first engine leaves memory of its GPU to the server's trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loragate.cli.settings.model import Settings, TrainerSettings
from loragate.cli.supervisor.child_commands import Programs
from loragate.engine.fleet.addresses import EngineAddress

VARIABLE = "LORAGATE_ENGINE__TRAINER_BYTES"
SHARE = str((4 << 30) + (1 << 20))


@pytest.mark.parametrize(
    ("trainer", "engine", "expected"),
    [
        ({"enabled": True, "step_bytes": 1 << 20}, {}, SHARE),
        ({"enabled": True, "device": "cpu"}, {}, "0"),
        ({"enabled": True}, {"backend": "vllm"}, "0"),
        ({"enabled": True}, {"trainer_bytes": 7}, "7"),
        ({"enabled": False}, {}, "0"),
    ],
)
def test_the_share(
    trainer: dict[str, Any], engine: dict[str, Any], expected: str, tmp_path: Path, secrets: Settings
) -> None:
    settings = secrets.model_copy(
        update={"trainer": TrainerSettings(**trainer), "engine": replace(secrets.engine, **engine)}
    )
    more = (EngineAddress("two", f"unix:{tmp_path}/two"),)
    programs = Programs(settings, f"unix:{tmp_path}/one", 3, "127.0.0.1:0", more_engines=more)
    assert programs.engine("model").environment[VARIABLE] == expected
    if not engine:
        assert programs.other_engine("model", 1).environment[VARIABLE] == "0"


@pytest.fixture
def secrets(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, engine_secret="s" * 32, secret_key="k" * 32)
