"""A run that this trainer holds: loaded from its last snapshot and the commands since then."""

import logging
from dataclasses import dataclass

from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import Command, CommandKind, RequestStatus, TrainingRun
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.optimizer import AdamParams
from loragate.trainer.trainer import LoraSettings, Trainer
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.requests import document, forward_backward

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HeldRun:
    """`run` is its row as last read."""

    tenant_id: str
    weight: float
    run: TrainingRun
    worker: str
    steps_since_snapshot: int = 0
    held_back_until: float = 0.0

    @property
    def id(self) -> str:
        return self.run.id

    async def load(self, store: Store, compute: Compute) -> None:
        """Bring the run into memory as it was after its last command. Raise LookupError, StoreError."""
        if self.id in compute.loaded or (self.run.next_seq == 0 and self.run.snapshot_file is None):
            return
        state = None
        async with store.tenant(self.tenant_id) as scope:
            commands = await scope.training_lease.done_since(self.run)
            if self.run.snapshot_file is not None:
                state = await scope.training_states.read(self.run.snapshot_file)
        if commands:
            log.info("training run %s: %d commands are run again", self.id, len(commands))

        def replay(trainer: Trainer) -> None:
            if state is not None:
                trainer.restore(self.id, state)
            for command in commands:
                _run_again(trainer, self.id, command)

        await compute.run_step(replay)
        self.steps_since_snapshot = sum(each.kind is CommandKind.OPTIM_STEP for each in commands)


def lora_settings(settings: object) -> LoraSettings:
    """Return the settings of a run's adapter, as the gateway has checked and written them."""
    assert isinstance(settings, dict)
    return LoraSettings(
        rank=settings["rank"],
        seed=settings["seed"],
        train_mlp=settings["train_mlp"],
        train_attn=settings["train_attn"],
        train_unembed=settings["train_unembed"],
    )


def adam_params(payload: bytes) -> AdamParams:
    """Return the parameters of an optimizer step."""
    given = document(payload)
    return AdamParams(**{name: float(str(value)) for name, value in given.items()})


def _run_again(trainer: Trainer, run_id: str, command: Command) -> None:
    """Repeat what a command did to the weights, the gradients and the moments."""
    if command.kind is CommandKind.CREATE and command.status is RequestStatus.DONE:
        trainer.create(run_id, lora_settings(document(command.payload)))
    elif command.kind is CommandKind.FORWARD_BACKWARD:
        if command.status is RequestStatus.FAILED:
            trainer.clear_gradients(run_id)
            return
        request = forward_backward(run_id, command.payload)
        if not request.forward_only:
            (result,) = trainer.forward_backward([request])
            if isinstance(result, TrainingRejected):
                raise LookupError(f"a request that succeeded before is rejected: {result}")
    elif command.kind is CommandKind.OPTIM_STEP:
        if command.status is RequestStatus.DONE:
            trainer.optim_step(run_id, adam_params(command.payload))
        else:
            trainer.clear_gradients(run_id)
    elif command.kind is CommandKind.LOAD and command.status is RequestStatus.DONE:
        raise LookupError("the state that it was loaded from was not kept")
