"""All of a run that is needed to go on with it, as safetensors and JSON: a pickle would run whatever is in it.

adapter_config.json, adapter_model.safetensors   PEFT's two files: a checkpoint can be served
optimizer.safetensors                            the optimizer's tensors, and torch's random state
run.json                                         the optimizer's and the schedule's numbers, other random states
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from loragate.finetune.training.checkpoints.folders import checkpoints_in

OPTIMIZER, RUN, TRAINER_STATE = "optimizer.safetensors", "run.json", "trainer_state.json"
ADAPTER = "adapter_model.safetensors"
_TORCH_RNG, _CUDA_RNG = "rng.torch", "rng.cuda"


@dataclass(frozen=True)
class AdapterState:
    """A moment of the adapter in training, in memory of its own."""

    tensors: dict[str, Tensor]
    config: PeftConfig

    @classmethod
    def capture(cls, model: PeftModel) -> "AdapterState":
        """As PEFT saves it, to be served rather than trained."""
        config = copy(model.active_peft_config)
        config.inference_mode = True
        # Left to itself PEFT compares the vocabulary with that of the model at the path which the config names.
        return cls(own(get_peft_model_state_dict(model, save_embedding_layers=False)), config)

    def write(self, folder: Path) -> None:
        """PEFT's two files."""
        save_file(self.tensors, folder / ADAPTER, metadata={"format": "pt"})
        self.config.save_pretrained(str(folder))


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run, in memory of its own: the run goes on while it is written."""

    adapter: AdapterState
    tensors: dict[str, Tensor]
    run: dict[str, Any]
    trainer_state: str

    def write(self, folder: Path) -> None:
        """All or nothing. Raises OSError."""
        with appearing(folder) as draft:
            self.adapter.write(draft)
            save_file(self.tensors, draft / OPTIMIZER)
            (draft / RUN).write_text(json.dumps(self.run))
            (draft / TRAINER_STATE).write_text(self.trainer_state)


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `folder` when the block is done and all of it is on the disk."""
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
    """PEFT's two files, all or nothing. Raises OSError."""
    with appearing(folder) as draft:
        AdapterState.capture(model).write(draft)


def own(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies in host memory, each in memory of its own."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Its tensors by parameter's number and name, and its groups, which are numbers only."""
    state = optimizer.state_dict()
    moments = [(number, name, value) for number, each in state["state"].items() for name, value in each.items()]
    return {f"{number}.{name}": torch.as_tensor(value) for number, name, value in moments}, state["param_groups"]


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]) -> None:
    """What `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        if number.isdigit():
            state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Of every generator that training draws from."""
    tensors = {_TORCH_RNG: torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors[_CUDA_RNG] = torch.cuda.get_rng_state()
    kind, key, *rest = np.random.get_state(legacy=True)
    return tensors, {"python": random.getstate(), "numpy": [kind, np.asarray(key).tolist(), *rest]}


def restore_random_states(tensors: dict[str, Tensor], others: dict[str, Any]) -> None:
    """What `random_states` gave, also by way of JSON."""
    torch.set_rng_state(tensors[_TORCH_RNG])
    if _CUDA_RNG in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors[_CUDA_RNG])
    version, internal, gauss = others["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, key, *rest = others["numpy"]
    np.random.set_state((kind, np.array(key, np.uint32), *rest))


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The optimizer's, and random states."""
    return load_file(folder / OPTIMIZER)


def read_run(folder: Path) -> dict[str, Any]:
    """What `Checkpoint.run` was."""
    run: dict[str, Any] = json.loads((folder / RUN).read_text())
    return run


def read_trainer_state(folder: Path) -> dict[str, Any]:
    """transformers' own."""
    state: dict[str, Any] = json.loads((folder / TRAINER_STATE).read_text())
    return state


class CheckpointWriter:
    """Writes one checkpoint at a time, beside the training. What went wrong with one is raised by the next call."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def write(self, checkpoint: Checkpoint, folder: Path, best: Path | None, written: Callable[[Path], None]) -> None:
        """Begins to. Of older ones the newest stay, and the best. `written` is called from another thread."""
        self.wait()
        work = (checkpoint, folder, best, written)
        self._thread = threading.Thread(target=self._write, args=work, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the last one is on the disk. Raises OSError."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, checkpoint: Checkpoint, folder: Path, best: Path | None, written: Callable[[Path], None]) -> None:
        try:
            checkpoint.write(folder)
            for old in checkpoints_in(folder.parent)[: -self._keep]:
                if old != best:
                    shutil.rmtree(old, ignore_errors=True)
            written(folder)
        except BaseException as error:
            self._error = error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
