"""Hundreds of malformed adapters, each made from a valid one that PEFT saved: all are rejected with a message."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import grpc
import httpx
import pytest
import pytest_asyncio
from safetensors import SafetensorError
from safetensors.numpy import load
from tokenizers import Tokenizer

from loragate.adapter_store.base_model.layout import layout_of
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.read import read_adapter
from loragate.v1 import adapters_pb2 as pb
from tests.attacks import malformed_configs, malformed_tensors, valid_adapters
from tests.attacks.adapter_files import Files
from tests.attacks.malformed_configs import Case
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.gateway_setup import new_config, new_tenants, stub_engine
from tests.gateway.grpc_client import connected, rejection
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.filterwarnings("ignore")]

GROUPS = {
    "document": malformed_configs.DOCUMENTS,
    "field": malformed_configs.UNKNOWN,
    "setting": malformed_configs.SETTINGS,
    "disguise": malformed_tensors.DISGUISES,
    "size": malformed_tensors.SIZES,
    "header": malformed_tensors.HEADERS,
    "name": malformed_tensors.NAMES,
    "missing": malformed_tensors.MISSING,
    "shape": malformed_tensors.WRONG_SHAPES,
    "value": malformed_tensors.VALUES,
}
CASES = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}
EVERY_FIFTH = list(CASES)[::5]


@pytest.fixture(scope="session")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    """One valid adapter of each kind."""
    return valid_adapters.adapters(valid_adapters.base(), tmp_path_factory.mktemp("good"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def mixture(tokenizer: Tokenizer) -> AsyncIterator[StubEngine]:
    """An engine that claims to support all of that."""
    async with stub_engine(tokenizer) as engine:
        engine.manifest = valid_adapters.manifest(valid_adapters.base(), tokenizer)
        yield engine


@pytest.fixture(scope="session")
def layout(mixture: StubEngine) -> BaseLayout:
    return layout_of(mixture.manifest)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def host(mixture: StubEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    config = await new_config(tmp_path_factory.mktemp("malformed"), mixture)
    config = replace(config, heartbeat_timeout=3600.0)  # tests with other loops delay this one
    async with serving(config, mixture, await new_tenants(config)) as gateway:
        await gateway.until_ready()
        yield gateway


async def send(http: httpx.AsyncClient, files: Files, name: str = "malformed") -> httpx.Response:
    parts = {"adapter_config.json": files.config, "adapter_model.safetensors": files.tensors}
    return await http.post("/v1/adapters", data={"name": name}, files={k: (k, v) for k, v in parts.items()})


def check_error(case: Case, message: str, param: str | None) -> None:
    """Check that the error is a sentence that names the cause."""
    assert param is not None, message
    assert param.startswith("adapter_")
    assert param.endswith(case.param), (param, message)
    assert case.words in message
    assert message.isprintable()
    assert len(message) < 700
    assert message.rstrip().endswith(".")


def test_there_are_hundreds_of_cases() -> None:
    assert len(CASES) > 300


@pytest.mark.parametrize("kind", [*valid_adapters.KINDS, *valid_adapters.HALVES])
async def test_the_originals_are_valid(host: Gateway, valid: dict[str, Files], kind: str) -> None:
    async with host.http(host.other_key) as http:
        answer = await send(http, valid[kind], "good")
        assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("name", CASES)
async def test_it_is_rejected_with_the_cause_and_not_stored(host: Gateway, valid: dict[str, Files], name: str) -> None:
    case = CASES[name]
    files = case.change(valid[case.kind])
    assert files != valid[case.kind]
    async with host.http() as http:
        answer = await send(http, files)
        assert answer.status_code == 400, (answer.status_code, answer.text)
        error = answer.json()["error"]
        check_error(case, error["message"], error["param"])
        assert (await http.get("/v1/adapters/malformed")).status_code == 404


MOST_MORE = 256 << 20  # bytes: two checks at once, each of a header of 12 MiB as Python's objects


@pytest.mark.long
async def test_all_of_them_at_once_leave_nothing_and_take_little_memory(
    mixture: StubEngine, valid: dict[str, Files], tmp_path: Path
) -> None:
    """In a separate process, four at a time, round after round."""
    config = replace(await new_config(tmp_path, mixture), max_changes_per_minute=None)
    async with gateway_in_a_process(config, mixture, await new_tenants(config)) as own, own.gateway.http() as http:
        turns = asyncio.Semaphore(4)

        async def one(files: Files) -> int:
            async with turns:
                return (await send(http, files)).status_code

        await one(valid["plain"])
        assert (await http.delete("/v1/adapters/malformed")).status_code == 200
        kept = set((config.data_dir / "blobs").rglob("*"))
        own.reset_peak()
        before = own.peak_bytes()
        for _ in range(2):
            statuses = await asyncio.gather(*(one(case.change(valid[case.kind])) for case in CASES.values()))
            assert set(statuses) == {400}
        grown = own.peak_bytes() - before
        assert grown < MOST_MORE, f"{grown >> 20} MiB more"
        assert set((config.data_dir / "blobs").rglob("*")) == kept
        await own.gateway.until_nothing_is_spooled(own.process.pid)
        assert (await http.get("/v1/adapters")).json()["data"] == []


def messages(files: Files) -> Iterator[pb.UploadRequest]:
    yield pb.UploadRequest(name="malformed", adapter_config=files.config)
    for start in range(0, len(files.tensors), 1 << 20):
        yield pb.UploadRequest(adapter_model=files.tensors[start : start + (1 << 20)])


@pytest.mark.parametrize("name", EVERY_FIFTH)
async def test_grpc_returns_the_same_error(host: Gateway, valid: dict[str, Files], name: str) -> None:
    case = CASES[name]
    async with connected(host.grpc_target, host.key) as client:
        reported = await rejection(
            client.adapters.Upload(messages(case.change(valid[case.kind])), metadata=client.metadata)
        )
    assert reported.status is grpc.StatusCode.INVALID_ARGUMENT
    check_error(case, reported.message, reported.param)


def read(files: Files, layout: BaseLayout) -> AdapterRejected | None:
    try:
        read_adapter(files.config, BytesIO(files.tensors), len(files.tensors), layout)
    except AdapterRejected as rejected:
        return rejected
    return None


def _flipped(raw: bytearray, rng: random.Random) -> None:
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def _flipped_early(raw: bytearray, rng: random.Random) -> None:
    raw[rng.randrange(min(len(raw), 1500))] = rng.randrange(256)


def _cut(raw: bytearray, rng: random.Random) -> None:
    del raw[rng.randrange(len(raw)) :]


def _repeated(raw: bytearray, rng: random.Random) -> None:
    at, length = rng.randrange(len(raw)), rng.randrange(1, 100)
    raw[at:at] = raw[at : at + length]


def _spliced(raw: bytearray, rng: random.Random) -> None:
    to, source, length = rng.randrange(len(raw)), rng.randrange(len(raw)), rng.randrange(1, 100)
    raw[to : to + length] = raw[source : source + length]


def _other_digit(raw: bytearray, rng: random.Random) -> None:
    digits = [at for at, byte in enumerate(raw[:3000]) if chr(byte).isdigit()]
    raw[rng.choice(digits or [0])] = rng.choice(b"0123456789-.eE")


DAMAGES = (_flipped, _flipped_early, _cut, _repeated, _spliced, _other_digit)


def damaged(files: Files, rng: random.Random) -> Files:
    """Damage one of the two files up to four times."""
    parts = {"config": bytearray(files.config), "tensors": bytearray(files.tensors)}
    raw = parts[rng.choice(("config", "tensors"))]
    for _ in range(rng.randrange(1, 5)):
        if raw:
            rng.choice(DAMAGES)(raw, rng)
    return Files(bytes(parts["config"]), bytes(parts["tensors"]))


def is_safetensors(raw: bytes) -> bool:
    """Return whether the format's own library reads it."""
    try:
        load(raw)
    except SafetensorError:
        return False
    except (KeyError, AttributeError, TypeError):  # numpy has no bfloat16
        return True
    return True


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_rejected_or_harmless(valid: dict[str, Files], layout: BaseLayout, seed: int) -> None:
    """Only files that the format's own library reads are accepted."""
    rng = random.Random(seed)
    for _ in range(100):
        files = damaged(rng.choice(list(valid.values())), rng)
        rejected = read(files, layout)
        if rejected is None:
            assert is_safetensors(files.tensors)
        else:
            assert rejected.param.startswith("adapter_")
            assert rejected.message.isprintable()


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
async def test_damage_in_long_runs(host: Gateway, valid: dict[str, Files], layout: BaseLayout, seed: int) -> None:
    """Through the gateway: 201 for what is still an adapter, 400 otherwise, and never anything else."""
    rng = random.Random(1_000_000 + seed)
    seen: dict[int, int] = {}
    async with host.http() as http:
        for _ in range(5_000):
            files = damaged(rng.choice(list(valid.values())), rng)
            status = (await send(http, files)).status_code
            seen[status] = seen.get(status, 0) + 1
            assert status == (201 if read(files, layout) is None else 400)
            if status == 201:
                assert (await http.delete("/v1/adapters/malformed")).status_code == 200
    assert set(seen) == {201, 400}
