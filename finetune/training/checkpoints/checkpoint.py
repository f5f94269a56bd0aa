"""Checkpoints as safetensors and JSON: a pickle could run arbitrary code when it is loaded.

adapter_config.json, adapter_model.safetensors   PEFT's two files: a checkpoint can be served
optimizer.safetensors                            the optimizer's tensors and torch's random state
run.json                                         numbers of the optimizer and the schedule, other random states
trainer_state.json                               transformers' own: step, losses, best checkpoint, data position
"""

import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.peft_format.classification import Task

OPTIMIZER, RUN, TRAINER_STATE = "optimizer.safetensors", "run.json", "trainer_state.json"
ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_TORCH_RNG, _CUDA_RNG = "rng.torch", "rng.cuda"

_OnWritten = Callable[[Path], None]


@dataclass(frozen=True)
class AdapterState:
    """A snapshot of the adapter in training, with its own memory."""

    tensors: dict[str, Tensor]
    config: PeftConfig
    labels: dict[str, Any] = field(default_factory=dict)  # a classifier's, further fields of the config

    @classmethod
    def capture(cls, model: PeftModel) -> "AdapterState":
        """Capture the adapter as PEFT saves it, to be served rather than trained."""
        config = copy(model.active_peft_config)
        config.inference_mode = True
        # By default PEFT compares the vocabulary with that of the model at the path in the config.
        tensors = to_host(get_peft_model_state_dict(model, save_embedding_layers=False))
        return cls(tensors, config, _labels(model) if config.task_type == Task.SEQUENCE else {})

    def write(self, folder: Path) -> None:
        """Write PEFT's two files."""
        save_file(self.tensors, folder / ADAPTER, metadata={"format": "pt"})
        self.config.save_pretrained(str(folder))
        if self.labels:
            place = folder / CONFIG
            place.write_text(json.dumps({**json.loads(place.read_text()), **self.labels}, indent=2))


def _labels(model: PeftModel) -> dict[str, Any]:
    """Return the fields of transformers' config that PEFT's does not have."""
    config: Any = model.get_base_model().config
    names = {str(number): label for number, label in config.id2label.items()}
    return {"id2label": names, "problem_type": config.problem_type}


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot of a run, with its own memory: the run continues while it is written."""

    adapter: AdapterState
    tensors: dict[str, Tensor]
    run: dict[str, Any]
    trainer_state: str

    def write(self, folder: Path) -> None:
        """Write all files or none. Raise OSError."""
        with atomic_folder(folder) as draft:
            self.adapter.write(draft)
            save_file(self.tensors, draft / OPTIMIZER)
            (draft / RUN).write_text(json.dumps(self.run))
            (draft / TRAINER_STATE).write_text(self.trainer_state)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write into; when the block ends it is synced to disk and renamed to `folder`."""
    draft = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    for path in (*draft.iterdir(), draft):
        _sync(path)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    _sync(folder.parent)


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Write PEFT's two files, both or neither. Raise OSError."""
    with atomic_folder(folder) as draft:
        AdapterState.capture(model).write(draft)


def to_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in host memory, each with its own memory."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Return the optimizer's tensors by parameter number and name, and its groups, which only hold numbers."""
    state = optimizer.state_dict()
    moments = [(number, name, value) for number, each in state["state"].items() for name, value in each.items()]
    return {f"{number}.{name}": torch.as_tensor(value) for number, name, value in moments}, state["param_groups"]


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]) -> None:
    """Restore what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        if number.isdigit():
            state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of every random generator that training uses."""
    tensors = {_TORCH_RNG: torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors[_CUDA_RNG] = torch.cuda.get_rng_state()
    kind, key, *rest = np.random.get_state(legacy=True)
    return tensors, {"python": random.getstate(), "numpy": [kind, np.asarray(key).tolist(), *rest]}


def restore_random_states(tensors: dict[str, Tensor], others: dict[str, Any]) -> None:
    """Restore what `random_states` returned, also after a round trip through JSON."""
    torch.set_rng_state(tensors[_TORCH_RNG])
    if _CUDA_RNG in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors[_CUDA_RNG])
    version, internal, gauss = others["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, key, *rest = others["numpy"]
    np.random.set_state((kind, np.array(key, np.uint32), *rest))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Read the tensors of the optimizer and the random states."""
    return load_file(folder / OPTIMIZER)


def read_run(folder: Path) -> dict[str, Any]:
    """Read `Checkpoint.run`."""
    run: dict[str, Any] = json.loads((folder / RUN).read_text())
    return run


def read_trainer_state(folder: Path) -> dict[str, Any]:
    """Read transformers' own state."""
    state: dict[str, Any] = json.loads((folder / TRAINER_STATE).read_text())
    return state


class CheckpointWriter:
    """Writes one checkpoint at a time in the background. The next call raises the error of the previous write."""

    def __init__(self, max_checkpoints: int) -> None:
        self._max_checkpoints = max_checkpoints
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def write(
        self, checkpoint: Checkpoint, folder: Path, best: Path | None, on_written: Callable[[Path], None]
    ) -> None:
        """Start writing. Of older checkpoints the newest are kept, and the best. `on_written` is called from another
        thread."""
        self.wait()
        work = (checkpoint, folder, best, on_written)
        self._thread = threading.Thread(target=self._write, args=work, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk. Raise OSError."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(
        self, checkpoint: Checkpoint, folder: Path, best: Path | None, on_written: Callable[[Path], None]
    ) -> None:
        try:
            checkpoint.write(folder)
            for old in checkpoints_in(folder.parent)[: -self._max_checkpoints]:
                if old != best:
                    shutil.rmtree(old, ignore_errors=True)
            on_written(folder)
        except BaseException as error:
            self._error = error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
