"""A store, tenants and a trainer's loop in this process, and clients that send commands as the SDK does."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from loragate.adapter_store.notices.wakeups import TRAINER, Wakeups
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import CommandKind, Outcome, RequestStatus
from loragate.adapter_store.training.runs import NewRun
from loragate.trainer.trainer import Trainer
from loragate.trainer.worker.adapters import AdapterStorage
from loragate.trainer.worker.commands import Commands
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.loop import TrainerLoop
from loragate.trainer.worker.snapshots import Snapshots
from loragate.v1 import engine_pb2
from loragate.v1 import training_pb2 as pb

SETTINGS = {"rank": 4, "seed": 1, "train_mlp": True, "train_attn": True, "train_unembed": True}
STEP = {"learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 0.0}


@dataclass
class World:
    store: Store
    trainer: Trainer
    config: TrainerConfig
    manifest: engine_pb2.Manifest
    tenants: Sequence[str]  # their ids
    computes: list[Compute] = field(default_factory=list)  # of all loops since the last `forget`

    def loop(self, name: str = "t1", **options: Any) -> TrainerLoop:
        compute = Compute(self.trainer, options.pop("max_bytes", self.config.max_bytes))
        self.computes.append(compute)
        config = TrainerConfig(**{**vars(self.config), "name": name, **options})
        snapshots = Snapshots(self.store, compute)
        adapters = AdapterStorage(self.store, self.manifest, no_probe, lambda *_: None)
        return TrainerLoop(
            store=self.store,
            compute=compute,
            commands=Commands(self.store, compute, snapshots, adapters, config.max_rank),
            snapshots=snapshots,
            config=config,
            wakeups=Wakeups(config.wakeup_dir, TRAINER),
            base_model=self.manifest.model_id,
        )

    @asynccontextmanager
    async def training(self, name: str = "t1", **options: Any) -> AsyncIterator[None]:
        """Run a trainer while the block runs, and stop it then."""
        task = asyncio.create_task(self.loop(name, **options).run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.forget()

    def forget(self) -> None:
        """Lose the trainer's memory, as a process does that dies, and with it the steps that its threads compute."""
        while self.computes:
            self.computes.pop().close()
        for run_id in self.trainer.run_ids:
            self.trainer.unload(run_id)

    async def client(self, tenant: int = 0, *, seed: int = 1, rank: int = 4) -> "Client":
        """Return a client with a new run, whose creation waits."""
        tenant_id = self.tenants[tenant]
        async with self.store.tenant(tenant_id, write=True) as scope:
            session = await scope.training_sessions.create(
                "key1", sdk_version="0", tags=[], user_metadata={}, display_name=None
            )
            settings = SETTINGS | {"seed": seed, "rank": rank}
            payload = orjson.dumps(settings)
            wanted = NewRun(session.id, 0, "key1", 4, settings, {})
            await scope.training_runs.create(wanted, CommandKind.CREATE, payload, payload)
        return Client(self, tenant_id, session.id, f"{session.id}:train:0")


@dataclass
class Client:
    world: World
    tenant_id: str
    session_id: str
    run_id: str

    async def send(self, seq: int, kind: CommandKind, payload: bytes, **options: Any) -> None:
        async with self.world.store.tenant(self.tenant_id, write=True) as scope:
            await scope.training_runs.submit(self.run_id, seq, kind, payload, payload, **options)

    async def forward_backward(self, seq: int, *data: pb.Datum, **options: Any) -> None:
        request = pb.ForwardBackwardRequest(model_id=self.run_id, seq_id=seq, data=data, loss_fn="cross_entropy")
        await self.send(seq, CommandKind.FORWARD_BACKWARD, request.SerializeToString(), **options)

    async def optim_step(self, seq: int, **params: float) -> None:
        await self.send(seq, CommandKind.OPTIM_STEP, orjson.dumps(STEP | params))

    async def save(self, seq: int, kind: CommandKind, name: str | None = None, **given: Any) -> None:
        payload = {"name": name, "ttl_seconds": None, "user_metadata": {}, "overwrite": False, **given}
        await self.send(seq, kind, orjson.dumps(payload))

    async def outcome(self, seq: int) -> Outcome:
        """Wait for the outcome of a command."""
        async with asyncio.timeout(60):
            while True:
                outcome = (await self.outcomes(seq)).get(seq)
                if outcome is not None and outcome.status is not RequestStatus.WAITING:
                    return outcome
                await asyncio.sleep(0.02)

    async def outcomes(self, *numbers: int) -> Mapping[int, Outcome]:
        async with self.world.store.tenant(self.tenant_id) as scope:
            return await scope.training_runs.outcomes(self.run_id, numbers)

    async def loss(self, seq: int) -> float:
        outcome = await self.outcome(seq)
        assert outcome.status is RequestStatus.DONE, outcome.error
        return pb.ForwardBackwardOutput.FromString(outcome.result).metrics["loss:sum"]


def datum(seed: int, length: int = 12, vocabulary: int = 64) -> pb.Datum:
    """Return a sequence with random targets."""
    random = np.random.default_rng(seed)
    tokens, targets = random.integers(1, vocabulary, (2, length))
    inputs = {
        "target_tokens": pb.Tensor(dense=targets.astype("<i8").tobytes(), dtype=pb.DTYPE_INT64, shape=[length]),
        "weights": pb.Tensor(dense=np.ones(length, "<f4").tobytes(), dtype=pb.DTYPE_FLOAT32, shape=[length]),
    }
    chunk = pb.Chunk(encoded_text=pb.EncodedText(tokens=tokens.astype("<i4").tobytes()))
    return pb.Datum(model_input=[chunk], loss_fn_inputs=inputs)


def bad_datum() -> pb.Datum:
    """Return a sequence whose weights have another length than its targets."""
    bad = datum(1)
    bad.loss_fn_inputs["weights"].CopyFrom(
        pb.Tensor(dense=np.ones(3, "<f4").tobytes(), dtype=pb.DTYPE_FLOAT32, shape=[3])
    )
    return bad


def config(folder: Path) -> TrainerConfig:
    return TrainerConfig(
        name="t1",
        model="",
        database_url="",
        blob_url="",
        secret_key=b"",
        engine_target=None,
        engine_secret="",
        engine_tls=None,
        workspace=folder / "work",
        wakeup_dir=folder / "wakeups",
        poll_seconds=0.02,
    )
