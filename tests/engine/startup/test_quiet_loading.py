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
print("loaded", file=sys.stderr)
noisy.deprecated()
"""


@pytest.mark.long
def test_no_progress_bar_and_no_deprecations_until_the_model_is_loaded(tmp_path: Path) -> None:
    make_model("llama").save_pretrained(tmp_path / "base")
    script = [sys.executable, "-c", _LOAD, str(tmp_path / "base")]
    stderr = subprocess.run(script, check=True, capture_output=True, text=True, timeout=240).stderr
    during, after = stderr.split("loaded\n")
    assert "Loading weights" not in during
    assert "FutureWarning" not in during
    assert "FutureWarning: soon to be removed" in after
