"""The environment of the training process: what its libraries need, and no secret of the server's."""

import os
from collections.abc import Mapping
from pathlib import Path

from loragate.finetune.training.protocol.assignment import Assignment

TENSORBOARD = "tensorboard"  # a tracker, and its folder in the workspace

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME"),
        *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    }
)
_PREFIXES = (
    *("LC_", "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH_", "PYTORCH_", "TRITON_", "BNB_", "HIP_", "HSA_"),
    *("ROCR_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_"),
)
_TRACKERS = {TENSORBOARD: ("TENSORBOARD_",), "mlflow": ("MLFLOW_",), "wandb": ("WANDB_",)}
_NETWORK = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    }
)


def trainer_environment(assignment: Assignment, ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for this assignment, taken from `ours` by an allow-list: credentials of clouds, hubs and
    databases stay out. Variables of trackers pass where runs are reported to them."""
    reports_to = assignment.settings.report_to
    names, prefixes = _NAMES, (*_PREFIXES, *(prefix for name in reports_to for prefix in _TRACKERS.get(name, ())))
    if any(name != TENSORBOARD for name in reports_to):
        names |= _NETWORK
    passed = {name: value for name, value in ours.items() if name.upper() in names or name.startswith(prefixes)}
    kind, _, number = assignment.settings.device.partition(":")
    visible = {"CUDA_VISIBLE_DEVICES": number} if kind == "cpu" or number else {}
    # Not in the run's own folder, which is removed with its job.
    boards = {"TENSORBOARD_LOGGING_DIR": str(board_folder(assignment))}
    # Waiting threads sleep: at idle priority the trainer gets too little CPU time to spin.
    passed["OMP_WAIT_POLICY"] = "PASSIVE"
    # bitsandbytes would import torch's compiler at its own import: two seconds, for nothing that a run needs.
    passed["TORCHDYNAMO_DISABLE"] = "1"
    return {**boards, **passed, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **visible}


def board_folder(assignment: Assignment) -> Path:
    """Return the folder of the run's TensorBoard files."""
    return assignment.folder.parents[2] / TENSORBOARD / assignment.name
