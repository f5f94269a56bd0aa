"""Commands to training runs: checked, recorded durably, and a trainer is woken. The order is that of `seq_id`."""

import secrets
from dataclasses import dataclass
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.notices.wakeups import TRAINER
from loragate.adapter_store.training.objects import CheckpointPath, CommandKind
from loragate.adapter_store.training.runs import NewRun
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.schemas.training.runs import (
    ExternalSave,
    LoraConfig,
    ModelCreate,
    OptimStep,
    SamplerSave,
    WeightsLoad,
    WeightsSave,
)
from loragate.gateway.schemas.validation import validated
from loragate.gateway.services import Services
from loragate.prompts.bodies import Body
from loragate.v1 import training_pb2 as pb

_MAX_SEQ = (1 << 31) - 1
_DEFAULT_RANK = 32

Command = OptimStep | WeightsSave | SamplerSave | ExternalSave
KINDS: dict[type[Body], CommandKind] = {
    OptimStep: CommandKind.OPTIM_STEP,
    WeightsSave: CommandKind.SAVE_STATE,
    SamplerSave: CommandKind.SAVE_SAMPLER,
    ExternalSave: CommandKind.SAVE_EXTERNAL,
}


async def create(use: Services, caller: TenantPrincipal, by: Actor, body: ModelCreate, raw: bytes) -> dict[str, Any]:
    """Create a run with a new adapter; return the future. Raise ApiError, StoreError."""
    _check_base(use, body.base_model)
    lora = body.lora_config or LoraConfig(rank=_DEFAULT_RANK)
    settings = {
        "rank": lora.rank,
        "seed": secrets.randbits(62) if lora.seed is None else lora.seed,
        "train_mlp": lora.train_mlp,
        "train_attn": lora.train_attn,
        "train_unembed": lora.train_unembed,
    }
    wanted = NewRun(
        session_id=body.session_id,
        number=body.model_seq_id,
        key_id=caller.key_id,
        rank=lora.rank,
        settings=settings,
        user_metadata=body.user_metadata or {},
    )
    return await _create(use, caller, by, wanted, CommandKind.CREATE, raw, settings)


async def load(use: Services, caller: TenantPrincipal, by: Actor, body: WeightsLoad, raw: bytes) -> dict[str, Any]:
    """Load weights, into a run or into a new one; return the future. Raise ApiError, StoreError."""
    if body.base_model is not None:
        _check_base(use, body.base_model)
    payload = {"path": body.path, "optimizer": body.optimizer}
    if body.model_id is not None and body.seq_id is not None:
        return await _submit(use, caller, by, body.model_id, body.seq_id, CommandKind.LOAD, raw, orjson.dumps(payload))
    assert body.session_id is not None
    assert body.model_seq_id is not None
    await weights_of(use, caller, body.path, "path")
    wanted = NewRun(
        session_id=body.session_id,
        number=body.model_seq_id,
        key_id=caller.key_id,
        rank=None,
        settings={},
        user_metadata=body.user_metadata or {},
    )
    return await _create(use, caller, by, wanted, CommandKind.LOAD, raw, payload)


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights that a path stands for: a checkpoint's, or those of a version of an adapter."""

    adapter: str
    version: int | None
    digest: str
    size_bytes: int
    run_id: str | None = None


async def weights_of(use: Services, caller: TenantPrincipal, path: str, param: str) -> Weights:
    """Return the weights of a path. Raise NotFound, which names `param`."""
    parsed = CheckpointPath.parse(path)
    if parsed is not None and parsed.adapter is not None:
        target = await use.resolver.resolve(caller, use.link.base, parsed.served_name)
        assert target.adapter is not None
        found = target.adapter
        return Weights(found.name, found.version, found.digest, found.size_bytes)
    async with use.store.tenant(caller.tenant_id) as scope:
        checkpoint = await scope.training_checkpoints.get(path, param=param)
    run_id = checkpoint.path.run_id
    name = checkpoint.adapter or run_id
    return Weights(name, checkpoint.version, checkpoint.digest, checkpoint.size_bytes, run_id)


async def command(
    use: Services, caller: TenantPrincipal, by: Actor, model: type[Command], document: dict[str, Any], raw: bytes
) -> dict[str, Any]:
    """Submit a command; return the future. One that is rejected uses up its number. Raise ApiError, StoreError."""
    kind = KINDS[model]
    try:
        body = validated(model, document)
    except InvalidRequest as error:
        await _reject(use, caller, by, document.get("model_id"), document.get("seq_id"), kind, raw, error)
        raise
    return await _submit(use, caller, by, body.model_id, body.seq_id, kind, raw, orjson.dumps(_payload(body)))


async def forward_backward(use: Services, caller: TenantPrincipal, by: Actor, raw: bytes) -> dict[str, Any]:
    """Submit a forward_backward, whose data the trainer checks; return the future. Raise ApiError, StoreError."""
    try:
        request = pb.ForwardBackwardRequest.FromString(raw)
    except DecodeError:
        raise InvalidRequest("The body is not a ForwardBackwardRequest.", code="invalid_protobuf") from None
    if not 1 <= request.seq_id <= _MAX_SEQ:
        raise InvalidRequest("Invalid 'seq_id': it must be at least 1.", param="seq_id", code="invalid_value")
    kind = CommandKind.FORWARD_BACKWARD
    return await _submit(use, caller, by, request.model_id, request.seq_id, kind, raw, raw)


def _payload(body: Command) -> dict[str, Any]:
    if isinstance(body, OptimStep):
        return body.adam_params.model_dump()
    payload = {
        "name": body.path,
        "ttl_seconds": body.ttl_seconds,
        "user_metadata": body.user_metadata or {},
        "overwrite": body.overwrite,
    }
    return payload | ({"sampler_number": body.sampling_session_seq_id} if isinstance(body, SamplerSave) else {})


async def _create(
    use: Services,
    caller: TenantPrincipal,
    by: Actor,
    wanted: NewRun,
    kind: CommandKind,
    raw: bytes,
    payload: dict[str, Any],
) -> dict[str, Any]:
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.training_sessions.require(wanted.session_id)
        request_id = await scope.training_runs.create(wanted, kind, raw, orjson.dumps(payload))
    use.wakeups.wake(TRAINER)
    return {"request_id": request_id, "model_id": request_id.rpartition(":")[0]}


async def _submit(
    use: Services,
    caller: TenantPrincipal,
    by: Actor,
    run_id: str,
    seq: int,
    kind: CommandKind,
    raw: bytes,
    payload: bytes,
) -> dict[str, Any]:
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        request_id = await scope.training_runs.submit(run_id, seq, kind, raw, payload)
    use.wakeups.wake(TRAINER)
    return {"request_id": request_id, "model_id": run_id}


async def _reject(
    use: Services,
    caller: TenantPrincipal,
    by: Actor,
    run_id: object,
    seq: object,
    kind: CommandKind,
    raw: bytes,
    error: InvalidRequest,
) -> None:
    """Record a command that is rejected, so that the next ones do not wait for it for ever."""
    if not isinstance(run_id, str) or not isinstance(seq, int) or isinstance(seq, bool) or not 1 <= seq <= _MAX_SEQ:
        return
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.training_runs.submit(run_id, seq, kind, raw, rejected=error.message)
    use.wakeups.wake(TRAINER)


def _check_base(use: Services, name: str) -> None:
    served = use.link.base.id
    if name != served:
        words = f"Invalid 'base_model': this server trains {served!r} only."
        raise Invalid(words, code="model_not_found", param="base_model")
