"""A vLLM without a model: each token follows from what came before it and from the adapter in the row's slot."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import safe_open

from loragate.engine.adapters.weights.load import TENSORS_FILE
from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.vllm_backend.llm import Call, CallRejected, LlmDied, Lora, Step

VOCABULARY = 320


@dataclass
class FakeLlm:
    """Implements `Llm`, with the faults that it is given.

    `last_slot_leaks`: rows without an adapter read the last slot, as in the CPU build of vLLM 0.32. `keeps_names`: a
    cached prefix is found by the adapter's name. `keeps_slots`: an adapter in a slot that was used has the weights of
    the one before. `ignores` are modules whose weights change nothing.
    """

    slots: int
    last_slot_leaks: bool = False
    keeps_names: bool = False
    keeps_slots: bool = False
    ignores: tuple[str, ...] = ()
    rejects: str = ""
    forgets: bool = False  # calls end without a reason
    dead: bool = False
    weights: list[bytes] = field(default_factory=list)  # of each slot
    inside: dict[int, int] = field(default_factory=dict)  # slots by number
    numbers: list[int] = field(default_factory=list)  # of all adapters that ever were there
    calls: list[Call] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    gate: asyncio.Event | None = None  # awaited before each token
    cached: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = [b""] * self.slots

    @property
    def died(self) -> bool:
        return self.dead

    async def generate(self, call: Call) -> AsyncIterator[Step]:
        if self.rejects:
            raise CallRejected(self.rejects)
        self.calls.append(call)
        if self.forgets:
            return
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            tokens: list[int] = []
            limit = call.sampling["max_tokens"]
            while len(tokens) < limit:
                await (self.gate.wait() if self.gate else asyncio.sleep(0))
                if self.dead:
                    raise LlmDied("killed")
                token, logprob = self._next(call, tokens)
                tokens.append(token)
                ends = token in call.sampling.get("stop_token_ids", ())
                finish = "stop" if ends else "length" if len(tokens) == limit else None
                scored = (logprob,) if call.sampling.get("logprobs") is not None else ()
                yield Step((token,), scored, cached_tokens=2, finish=finish)
                if ends:
                    return
        finally:
            self.running -= 1

    async def add_lora(self, lora: Lora) -> None:
        if self.rejects:
            raise CallRejected(self.rejects)
        await asyncio.sleep(0)
        assert lora.number not in self.numbers, "a number is used once"
        slot = min(set(range(self.slots)) - set(self.inside.values()))
        self.numbers.append(lora.number)
        self.inside[lora.number] = slot
        if not (self.keeps_slots and self.weights[slot]):
            self.weights[slot] = _weights(lora.folder, self.ignores)

    async def remove_lora(self, number: int) -> None:
        await asyncio.sleep(0)
        slot = self.inside.pop(number)
        if not self.keeps_slots:
            self.weights[slot] = b""

    async def stop(self) -> None:
        self.dead = True

    def _next(self, call: Call, tokens: list[int]) -> tuple[int, TokenLogprob]:
        weights = self._weights_of(call)
        digest = hashlib.sha256(repr((call.prompt, tokens)).encode() + weights).digest()
        token, other = digest[0], 256 + digest[1] % 64
        logprob = -1 - digest[2] / 64
        return token, TokenLogprob(logprob, ((token, logprob), (other, logprob - 2)))

    def _weights_of(self, call: Call) -> bytes:
        if call.lora is None:
            return self.weights[-1] if self.last_slot_leaks else b""
        found = self.weights[self.inside[call.lora.number]]
        if self.keeps_names:
            return self.cached.setdefault((call.lora.name, call.cache_salt), found)
        return found


def _weights(folder: Path, ignores: tuple[str, ...]) -> bytes:
    """Return what the adapter changes; nothing if all of its B are zero."""
    with safe_open(folder / TENSORS_FILE, framework="np") as file:
        names = [name for name in file.keys() if not any(each in name for each in ignores)]  # noqa: SIM118
        tensors = {name: file.get_tensor(name) for name in sorted(names)}
    if not any(tensor.any() for name, tensor in tensors.items() if "_B" in name):
        return b""
    return hashlib.sha256(b"".join(tensor.tobytes() for tensor in tensors.values())).digest()
