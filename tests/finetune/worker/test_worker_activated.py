"""A worker's activated adapters: from chats with an invocation to an adapter that the invocation activates."""

import json
from typing import Any

import pytest
from tokenizers import Tokenizer

from loragate.adapter_store.jobs.job import Job, JobStatus
from tests.finetune.worker_world import World, ended

JUDGE = "<s>judge</s>"  # special tokens at both ends: others merge with what is beside them


def judged(count: int) -> list[Any]:
    """Return completions; special tokens that their prompts spell are special."""
    return [
        {"prompt": f"<s>fox {n} says {'no ' * (n % 5)}{JUDGE}", "completion": ("yes", "no", "maybe")[n % 3]}
        for n in range(count)
    ]


async def trained(world: World, *rows: Any, **chosen: Any) -> Job:
    invocation = Tokenizer.from_str(world.manifest.tokenizer_json.decode()).encode(JUDGE, add_special_tokens=False).ids
    job = await world.job(await world.file(*rows), alora_invocation_tokens=invocation, **chosen)
    async with world.working():
        return await world.until(job, ended)


async def test_lines_without_the_invocation_are_rejected(world: World) -> None:
    rows = judged(12)
    rows[2]["prompt"] = rows[6]["prompt"] = "a document"
    done = await trained(world, *rows)
    assert done.error is not None
    assert (done.error.code, done.error.param) == ("invalid_training_file", "training_file")
    words = "its tokens do not contain the invocation (`alora_invocation_tokens`)"
    assert done.error.message == f"Line 3: {words}; Line 7: {words}"


@pytest.mark.long
@pytest.mark.parametrize("chosen", [{}, {"streaming": True, "n_steps": 3}], ids=["nf4", "streaming"])
async def test_from_lines_to_an_activated_adapter(world: World, chosen: dict[str, Any]) -> None:
    rows = judged(24)
    valid = await world.file(*judged(9))
    done = await trained(world, *rows, valid=valid, **chosen)
    assert (done.status, done.error) == (JobStatus.SUCCEEDED, None)
    async with world.store.tenant(world.tenant.id) as scope:
        adapter = await scope.adapters.get(f"poet-{done.id[-8:]}")
        version = await scope.adapters.version(adapter.name, adapter.latest_version)
    stored = await world.store.open_adapter(world.tenant.id, version.digest)
    wanted = done.request.hyperparameters["alora_invocation_tokens"]
    assert json.loads(stored.config_json)["alora_invocation_tokens"] == wanted
    assert dict(done.recipe or {})["alora_invocation_tokens"] == wanted
