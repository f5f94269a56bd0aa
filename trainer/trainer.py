"""The trainer: adapters of several runs on one base model, and the computations on them."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from loragate.engine.config import EngineConfig
from loragate.trainer import adapter_files, loading, saved_state
from loragate.trainer.adapter import (
    Adapter,
    BufferLayout,
    LoraSettings,
    check_settings,
    memory_bytes,
    new_adapter,
    shapes_of,
)
from loragate.trainer.base_model import BaseModel
from loragate.trainer.computation import Computation
from loragate.trainer.datum import Datum, check_tokens
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.losses import check_inputs, check_loss
from loragate.trainer.optimizer import AdamParams, adamw_step, check_adam, gradient_norm
from loragate.trainer.request import DatumResults, ForwardBackward, ForwardBackwardResult

__all__ = [
    "AdamParams",
    "Datum",
    "ForwardBackward",
    "ForwardBackwardResult",
    "LoraSettings",
    "Trainer",
    "TrainingRejected",
]


class Trainer:
    """One base model and the adapters in training on it. A step's numbers depend on no other run.

    One thread at a time begins and advances computations. What concerns one run alone may be called by another thread
    beside it, if no computation that has not ended has the run.
    """

    def __init__(self, base: BaseModel, *, max_rank: int, max_step_tokens: int) -> None:
        self._base = base
        self._max_rank = max_rank
        self._max_step_tokens = max_step_tokens
        self._runs: dict[str, Adapter] = {}

    @classmethod
    def load(
        cls, directory: Path, config: EngineConfig, *, checkpointing: bool = False, max_step_tokens: int = 4096
    ) -> "Trainer":
        """Load the base model as the engine does. Raise ModelRejected for one that cannot be trained.

        With `checkpointing`, each layer is computed a second time in the backward pass, and a step takes less memory.
        A step has at most `max_step_tokens` rows, or one sequence.
        """
        base = loading.load(directory, config, checkpointing=checkpointing)
        return cls(base, max_rank=config.max_lora_rank, max_step_tokens=max_step_tokens)

    def limit_device_memory(self, beside: int) -> None:
        """Let this process take at most `beside` bytes of a GPU in addition to what it has, so that an engine there
        keeps its own: a step that needs more fails."""
        device = self._base.device
        if device.type == "cuda":
            _, total = torch.cuda.mem_get_info(device)
            share = (torch.cuda.memory_allocated(device) + beside) / total
            torch.cuda.set_per_process_memory_fraction(min(1.0, share), device)

    @property
    def vocabulary_size(self) -> int:
        return self._base.vocabulary

    @property
    def max_length(self) -> int:
        """The most tokens of one sequence."""
        return self._base.max_length

    @property
    def targets(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the modules that `train_attn`, `train_mlp` and `train_unembed` target: attn, mlp, unembed."""
        return self._base.targets.by_role

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(self._runs)

    @property
    def between_layers(self) -> Callable[[], None]:
        """What the thread of a computation calls between the layers of a step."""
        return self._base.context.between_layers

    @between_layers.setter
    def between_layers(self, call: Callable[[], None]) -> None:
        self._base.context.between_layers = call

    def check(self, data: Datum | Sequence[Datum], loss_fn: str, loss_config: Mapping[str, float]) -> None:
        """Raise TrainingRejected for data that this model or loss cannot compute."""
        loss = check_loss(loss_fn, loss_config)
        data = (data,) if isinstance(data, Datum) else data
        if not data:
            raise TrainingRejected("data: is empty")
        for index, datum in enumerate(data):
            check_tokens(datum, f"data[{index}]", self.vocabulary_size, self.max_length)
            check_inputs(datum, f"data[{index}]", loss_fn, loss, loss_config)

    def create(self, run_id: str, settings: LoraSettings) -> None:
        """Create a run whose adapter changes nothing yet. Raise TrainingRejected for settings that cannot be used."""
        check_settings(settings, self._base.targets, self._max_rank)
        if settings.seed is None:
            settings = replace(settings, seed=secrets.randbits(31))
        self._runs[run_id] = new_adapter(settings, self._base.targets, self._base.device)

    def create_from_adapter(self, run_id: str, config_json: bytes, tensors: bytes) -> None:
        """Create a run from PEFT's two files. Raise TrainingRejected unless they are plain LoRA on our targets."""
        self._runs[run_id] = adapter_files.read(
            config_json, tensors, self._base.layout, self._base.targets, self._base.device
        )

    def unload(self, run_id: str) -> None:
        """Discard a run; its state is lost."""
        del self._runs[run_id]

    def bytes_of(self, run_id: str) -> int:
        """Return the memory of a run with its gradient and moments."""
        return memory_bytes(self._runs[run_id].layout)

    def settings_of(self, run_id: str) -> LoraSettings:
        """Return the settings of a run, also of one that was made from an adapter or a state."""
        return self._runs[run_id].settings

    def estimate(self, settings: LoraSettings) -> int:
        """Return the memory that a run with these settings would take. Raise TrainingRejected as `create` does."""
        check_settings(settings, self._base.targets, self._max_rank)
        return memory_bytes(BufferLayout(shapes_of(settings, self._base.targets), self._base.targets))

    def has_gradients(self, run_id: str) -> bool:
        """Return whether there is a gradient since the last optimizer step."""
        return self._runs[run_id].gradient is not None

    def clear_gradients(self, run_id: str) -> None:
        self._runs[run_id].clear_gradient()

    def begin(self, requests: Sequence[ForwardBackward]) -> Computation:
        """Return the computation of all requests together, in steps of at most `max_step_tokens` rows.

        A request that fails is a TrainingRejected among the results, and leaves its run's gradient as it was before it.
        Requests of one run add to its gradient in their order. Until the computation's end, only other runs change.
        """
        results = DatumResults(requests)
        for index, request in enumerate(requests):
            assert request.run_id in self._runs, f"{request.run_id} is not loaded"
            try:
                self.check(request.data, request.loss_fn, request.loss_config)
            except TrainingRejected as error:
                results.errors[index] = error
        adapters = {each.run_id: self._runs[each.run_id] for each in requests}
        return Computation(self._base, adapters, requests, results, self._max_step_tokens)

    def forward_backward(self, requests: Sequence[ForwardBackward]) -> list[ForwardBackwardResult | TrainingRejected]:
        """Return the results of all requests, computed to the end."""
        computation = self.begin(requests)
        while computation.next_step is not None:
            computation.advance()
        return computation.results()

    def optim_step(self, run_id: str, params: AdamParams) -> dict[str, float]:
        """Update a run's weights by its gradient, and clear it; return "grad_norm:mean", before clipping.

        Raise TrainingRejected for bad numbers, or without a gradient: the moments alone would move the weights.
        """
        check_adam(params)
        adapter = self._runs[run_id]
        if adapter.gradient is None:
            raise TrainingRejected("optim_step: there is no gradient; call forward_backward first")
        gradient = adapter.gradient.flat
        norm = gradient_norm(gradient)
        if params.grad_clip_norm:
            gradient.mul_(min(1.0, params.grad_clip_norm / (norm + 1e-6)))
        if adapter.moments is None:
            adapter.moments = adapter.zeros(), adapter.zeros()
        adapter.steps += 1
        adamw_step(adapter.buffer.flat, gradient, *adapter.moments, adapter.steps, params)
        adapter.clear_gradient()
        return {"grad_norm:mean": norm}

    def export(self, run_id: str) -> tuple[bytes, bytes]:
        """Return PEFT's adapter_config.json and adapter_model.safetensors."""
        return adapter_files.write(self._runs[run_id], self._base.layout)

    def state(self, run_id: str) -> bytes:
        """Return a run's settings, weights, moments and gradient as a safetensors file, for `restore`."""
        return saved_state.write(self._runs[run_id])

    def restore(self, run_id: str, state: bytes, *, optimizer: bool = True, gradients: bool = True) -> None:
        """Create a run, or replace it, from `state`, without its moments or gradient if so wished.

        Raise TrainingRejected for a state of another base model, or damaged.
        """
        targets, device = self._base.targets, self._base.device
        self._runs[run_id] = saved_state.read(state, targets, device, optimizer=optimizer, gradients=gradients)
