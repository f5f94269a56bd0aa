"""The commands of a run, except forward_backward: what each does, and its response."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.training.lease import NewCheckpoint, Progress
from loragate.adapter_store.training.objects import (
    CheckpointKind,
    CheckpointPath,
    Command,
    CommandKind,
    ErrorCategory,
    Outcome,
    Sampler,
    sampler_id_of,
)
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.worker.adapters import AdapterStorage
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.held_run import HeldRun, adam_params, lora_settings
from loragate.trainer.worker.requests import document
from loragate.trainer.worker.snapshots import Snapshots

_STATES = {CommandKind.SAVE_STATE: CheckpointKind.STATE, CommandKind.SAVE_EXTERNAL: CheckpointKind.EXTERNAL}


class Commands:
    """Executes commands of held runs, one at a time."""

    def __init__(
        self, store: Store, compute: Compute, snapshots: Snapshots, adapters: AdapterStorage, max_rank: int
    ) -> None:
        self._store = store
        self._compute = compute
        self._snapshots = snapshots
        self._adapters = adapters
        self._max_rank = max_rank

    async def execute(self, held: HeldRun, command: Command) -> Progress:
        """Execute a command; return what to record. Raise LeaseLost, and Unavailable, after which it is tried again."""
        try:
            return await self._execute(held, command)
        except (TrainingRejected, NotFound) as error:
            return self._failed(held, command, Outcome.failed(str(error)))
        except LeaseLost:
            raise
        except StoreError as error:
            if error.status == 503:
                raise
            return self._failed(held, command, Outcome.failed(error.message))
        except LookupError:
            error_text = "The weights that this needs could not be read."
            return self._failed(held, command, Outcome.failed(error_text, ErrorCategory.SERVER))

    async def _execute(self, held: HeldRun, command: Command) -> Progress:
        given: Any = document(command.payload)
        if command.kind is CommandKind.CREATE:
            return await self._create(held, command, given)
        if command.kind is CommandKind.LOAD:
            return await self._load(held, command, given)
        if command.kind is CommandKind.OPTIM_STEP:
            return await self._optim_step(held, command)
        if command.kind is CommandKind.SAVE_SAMPLER:
            return await self._save_sampler(held, command, given)
        return await self._save(held, command, given)

    async def _create(self, held: HeldRun, command: Command, given: Any) -> Progress:
        settings = lora_settings(given)
        if not 1 <= settings.rank <= self._max_rank:
            raise TrainingRejected(f"lora_config.rank: it must be 1 to {self._max_rank}.")
        await self._compute.run(lambda trainer: trainer.create(held.id, settings))
        return _done(held, command, {"model_id": held.id, "type": "create_model"})

    async def _load(self, held: HeldRun, command: Command, given: Any) -> Progress:
        if held.run.snapshot_seq != command.seq:
            await self._load_weights(held, given["path"], optimizer=given["optimizer"])
            try:  # before the result is recorded, because what was loaded may be deleted
                await self._snapshots.save_after(held, command.seq)
            except StoreError:
                self._compute.trainer.unload(held.id)  # it continues as it was before
                raise
        settings = await self._compute.run(lambda trainer: trainer.settings_of(held.id))
        response = {"path": given["path"], "model_id": held.id, "type": "load_weights"}
        made = {
            "rank": settings.rank,
            "seed": settings.seed,
            "train_mlp": settings.train_mlp,
            "train_attn": settings.train_attn,
            "train_unembed": settings.train_unembed,
        }
        return _done(held, command, response, settings=made, gradients_failed=False)

    async def _load_weights(self, held: HeldRun, path: str, *, optimizer: bool) -> None:
        parsed = CheckpointPath.parse(path)
        async with self._store.tenant(held.tenant_id) as scope:
            if parsed is not None and parsed.adapter is not None:
                version = int(parsed.name) if parsed.name.isdigit() else None
                alias = None if parsed.name.isdigit() else parsed.name
                route = await scope.adapters.route(parsed.adapter, version=version, alias=alias)
                digest, state = route.pick().digest, None
            else:
                checkpoint = await scope.training_checkpoints.get(path)
                file, digest = checkpoint.state_file, checkpoint.digest
                state = None if file is None else await scope.training_states.read(file)
        if state is not None:
            whole = state
            await self._compute.run(
                lambda trainer: trainer.restore(held.id, whole, optimizer=optimizer, gradients=False)
            )
        elif optimizer:
            raise TrainingRejected("path: it has no optimizer's state; load it without, or a checkpoint of save_state.")
        else:
            stored = await self._store.open_adapter(held.tenant_id, digest)
            tensors = b"".join([chunk async for chunk in stored.tensors])
            await self._compute.run(lambda trainer: trainer.create_from_adapter(held.id, stored.config_json, tensors))

    async def _optim_step(self, held: HeldRun, command: Command) -> Progress:
        if held.run.gradients_failed:
            await self._compute.run(lambda trainer: trainer.clear_gradients(held.id))
            words = (
                "A forward_backward before this optim_step failed, so its gradients were discarded; nothing changed."
            )
            return Progress({command.seq: Outcome.failed(words)}, gradients_failed=False)
        params = adam_params(command.payload)
        metrics = await self._compute.run(lambda trainer: trainer.optim_step(held.id, params))
        held.steps_since_snapshot += 1
        return _done(held, command, {"metrics": metrics, "type": "optim_step"}, steps=1)

    async def _save_sampler(self, held: HeldRun, command: Command, given: Any) -> Progress:
        config_json, tensors = await self._compute.run(lambda trainer: trainer.export(held.id))
        if given["name"] is None:
            staged = await self._adapters.keep_for_sampling(held.tenant_id, config_json, tensors)
            sampler = Sampler(
                id=sampler_id_of(held.run.session_id, given["sampler_number"]),
                session_id=held.run.session_id,
                model_path=None,
                adapter=held.id,
                version=None,
                digest=staged.digest,
                size_bytes=staged.size_bytes,
            )
            response = {"sampling_session_id": sampler.id, "type": "save_weights_for_sampler"}
            return replace(_done(held, command, response), sampler=sampler, rank=staged.rank)
        path = CheckpointPath(held.id, CheckpointKind.SAMPLER, given["name"])
        async with self._store.tenant(held.tenant_id) as scope:
            known = await scope.training_checkpoints.find(path)
        if known is not None and not given["overwrite"]:
            raise TrainingRejected(f"path: the run has a checkpoint {path.name!r}; choose another name.")
        made = await self._adapters.publish(held.tenant_id, held.run, path.name, config_json, tensors)
        new = NewCheckpoint(
            path=path,
            digest=made.digest,
            size_bytes=made.size_bytes,
            user_metadata=given["user_metadata"],
            expires_at=_expiry(given),
            adapter=made.adapter,
            version=made.version,
        )
        async with self._store.tenant(held.tenant_id, write=True) as scope:
            await scope.training_lease.add_checkpoint(held.worker, new, overwrite=given["overwrite"])
        return _done(held, command, {"path": str(path), "type": "save_weights_for_sampler"})

    async def _save(self, held: HeldRun, command: Command, given: Any) -> Progress:
        kind = _STATES[command.kind]
        path = CheckpointPath(held.id, kind, given["name"] or f"{command.seq:06d}")
        config_json, tensors = await self._compute.run(lambda trainer: trainer.export(held.id))
        staged = await self._adapters.keep(held.tenant_id, config_json, tensors)
        new = NewCheckpoint(
            path=path,
            digest=staged.digest,
            size_bytes=staged.size_bytes,
            user_metadata=given["user_metadata"],
            expires_at=_expiry(given),
            adapter_bytes=staged.size_bytes,
            rank=staged.rank,
        )
        if kind is CheckpointKind.EXTERNAL:
            async with self._store.tenant(held.tenant_id, write=True) as scope:
                await scope.training_lease.add_checkpoint(held.worker, new, overwrite=given["overwrite"])
            response = {"path": str(path), "size_bytes": staged.size_bytes, "type": "save_weights_external"}
            return _done(held, command, response)
        state = await self._compute.run(lambda trainer: trainer.state(held.id))
        async with (
            self._store.tenant(held.tenant_id, write=True) as scope,
            scope.training_states.stored(str(path), state) as file_id,
        ):
            size = staged.size_bytes + len(state)
            whole = replace(new, size_bytes=size, state_file=file_id)
            await scope.training_lease.add_checkpoint(held.worker, whole, overwrite=given["overwrite"])
        return _done(held, command, {"path": str(path), "type": "save_weights"})

    def _failed(self, held: HeldRun, command: Command, outcome: Outcome) -> Progress:
        creates = command.seq == 0
        return Progress({command.seq: outcome}, held.run.gradients_failed, failed=creates)


def _done(
    held: HeldRun,
    command: Command,
    response: dict[str, Any],
    *,
    steps: int = 0,
    settings: dict[str, Any] | None = None,
    gradients_failed: bool | None = None,
) -> Progress:
    failed = held.run.gradients_failed if gradients_failed is None else gradients_failed
    outcome = Outcome.done(orjson.dumps(response))
    return Progress({command.seq: outcome}, failed, steps=steps, settings=settings)


def _expiry(given: Any) -> Any:
    seconds = given["ttl_seconds"]
    return None if seconds is None else utc_now() + timedelta(seconds=seconds)
