"""Loading a model prints none of transformers' output to the terminal."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import make_model

_LOAD = """
import sys
from pathlib import Path

import transformers.modeling_utils as noisy

from loragate.engine.config import EngineConfig
from loragate.engine.startup.build import load

exec("def deprecated(): warnings.warn('soon to be removed', FutureWarning)", vars(noisy))
evaluate = noisy.PreTrainedModel.eval
noisy.PreTrainedModel.eval = lambda model: (noisy.deprecated(), evaluate(model))[1]

folder = Path(sys.argv[1])
load(EngineConfig(model=str(folder), listen="", cache_dir=folder / "cache"))
if "--after" in sys.argv:
    noisy.deprecated()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quiet") / "base"
    make_model("llama").save_pretrained(folder)
    return folder


def stderr_of_loading(folder: Path, *options: str) -> str:
    script = [sys.executable, "-c", _LOAD, str(folder), *options]
    return subprocess.run(script, check=True, capture_output=True, text=True, timeout=240).stderr


def test_no_progress_bar_and_no_deprecations(folder: Path) -> None:
    stderr = stderr_of_loading(folder)
    assert "Loading weights" not in stderr
    assert "FutureWarning" not in stderr


def test_warnings_are_restored_once_the_model_is_loaded(folder: Path) -> None:
    assert "FutureWarning: soon to be removed" in stderr_of_loading(folder, "--after")
