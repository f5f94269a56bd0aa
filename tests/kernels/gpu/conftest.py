"""What these tests need where nothing above them is read, see `pytest.ini` beside this."""

import importlib.util
import os
import sys
from pathlib import Path

import torch
from hypothesis import HealthCheck, settings

settings.register_profile("kernels", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernels")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

if importlib.util.find_spec("loragate") is None:
    sys.path.append(str(Path(__file__).parents[3]))
    from benchmarks.lib import checkout

    checkout.find_parts()
