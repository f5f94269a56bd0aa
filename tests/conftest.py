"""What holds for all tests."""

import os

import torch
from hypothesis import HealthCheck, settings

# No timed assertions: a busy machine is no defect of the code.
settings.register_profile("loragate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loragate")

# Before anything imports triton.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
