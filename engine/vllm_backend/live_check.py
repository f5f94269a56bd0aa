"""The attach test on the model that is to be served: what can be known of it without another engine.

An adapter whose B is zero is the base model. An adapter on a module changes the logits. A row is the same alone, beside
all others, and while adapters enter and leave vLLM.
"""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loragate.engine.vllm_backend.llm import CallRejected, Llm, Lora
from loragate.engine.vllm_backend.probe import (
    TOLERANCE,
    Row,
    difference,
    read_alone,
    read_together,
    wrong_rows,
)
from loragate.engine.vllm_backend.random_adapters import last_name, write_random
from loragate.peft_format.plan.layout import BaseLayout, TargetModule

_AMPLITUDES = (0.1, 0.5, 2.0)  # tried until an adapter changes something
_CHANGED = 3  # times the tolerance, by which a logprob must change
_RANK = 8
_ROUNDS = 3


@dataclass(slots=True)
class LiveReport:
    """`targets` are the last names of modules that adapters change, `unchanged` those of the others; `wrong` are
    sentences about wrong rows."""

    targets: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


class LiveCheck:
    """Runs the test at a vLLM with `slots` free slots. It leaves no adapter behind."""

    def __init__(
        self, llm: Llm, layout: BaseLayout, slots: int, numbers: Iterator[int], scratch: Path, vocabulary: int
    ) -> None:
        self._llm = llm
        self._layout = layout
        self._slots = slots
        self._numbers = numbers
        self._scratch = scratch
        self._tolerance = TOLERANCE[layout.dtype]
        self._prompts = [
            tuple((17 + 31 * row + 7 * place * (row + 1)) % vocabulary for place in range(4 + 5 * row))
            for row in range(4)
        ]

    async def run(self) -> LiveReport:
        report, amplitude = LiveReport(), _AMPLITUDES[-1]
        for amplitude in _AMPLITUDES:
            report.targets = await self._targets(amplitude)
            if report.targets == self._names:
                break
        report.unchanged = self._names - report.targets
        report.wrong += await self._zero_is_the_base(report.targets)
        if report.targets:
            report.wrong += await self._rows_stay_themselves(report.targets, amplitude)
        shutil.rmtree(self._scratch, ignore_errors=True)
        return report

    @property
    def _names(self) -> set[str]:
        return {last_name(name) for name, module in self._layout.modules.items() if module.servable}

    async def _targets(self, amplitude: float) -> set[str]:
        """Return the names of modules at which an adapter changes a row."""
        rows = self._rows("the base model", None)[:1]
        [base] = await read_alone(self._llm, rows)
        changed = set()
        for number, name in enumerate(sorted(self._names)):
            try:
                lora = await self._add({name}, seed=number, amplitude=amplitude)
            except CallRejected:
                continue
            [found] = await read_alone(self._llm, self._rows(name, lora)[:1])
            await self._remove(lora)
            if difference(base, found, _CHANGED * self._tolerance):
                changed.add(name)
        return changed

    async def _zero_is_the_base(self, targets: set[str]) -> list[str]:
        base_rows = self._rows("a row of the base model", None)
        base = await read_alone(self._llm, base_rows)
        if not targets:
            return []
        zero = await self._add(targets, seed=1, amplitude=0.0)
        zero_rows = self._rows("a row of an adapter whose B is zero", zero)
        found = await read_together(self._llm, [*base_rows, *zero_rows])
        await self._remove(zero)
        return wrong_rows(
            "an adapter whose B is zero beside the base model",
            [*base_rows, *zero_rows],
            base * 2,
            found,
            self._tolerance,
        )

    async def _rows_stay_themselves(self, targets: set[str], amplitude: float) -> list[str]:
        """Mix adapters and the base model, then let adapters enter and leave while others decode."""
        rows = self._rows("a row of the base model", None)
        alone = await read_alone(self._llm, rows)  # before there is any adapter
        loras = [await self._add(targets, seed=100 + i, amplitude=amplitude) for i in range(min(2, self._slots))]
        for place, lora in enumerate(loras):
            own = self._rows(f"a row of adapter {place + 1}", lora)
            rows += own
            alone += await read_alone(self._llm, own)
        wrong = []
        if len(loras) > 1:
            first, second = alone[len(self._prompts)], alone[2 * len(self._prompts)]
            if not difference(first, second, self._tolerance):
                wrong.append("two adapters: they give the same row")
        together = await read_together(self._llm, rows)
        wrong += wrong_rows("rows together", rows, alone, together, self._tolerance)
        if len(loras) > 1:
            leaving = loras.pop()
            kept = [row for row in rows if row.lora is not leaving]
            expected = [reading for row, reading in zip(rows, alone, strict=True) if row.lora is not leaving]
            found, _ = await asyncio.gather(
                read_together(self._llm, kept), self._swap(leaving, targets, amplitude, _ROUNDS)
            )
            wrong += wrong_rows("rows while adapters enter and leave", kept, expected, found, self._tolerance)
        for lora in loras:
            await self._remove(lora)
        return wrong

    async def _swap(self, leaving: Lora, targets: set[str], amplitude: float, rounds: int) -> None:
        """Put other adapters in the place of one, one after the other, and leave the place empty."""
        for turn in range(rounds):
            await self._remove(leaving)
            leaving = await self._add(targets, seed=200 + turn, amplitude=amplitude)
        await self._remove(leaving)

    def _rows(self, label: str, lora: Lora | None) -> list[Row]:
        return [Row(f"{label}, prompt {place + 1}", prompt, lora) for place, prompt in enumerate(self._prompts)]

    async def _add(self, names: set[str], seed: int, amplitude: float) -> Lora:
        number = next(self._numbers)
        folder = self._scratch / str(number)
        rank = min(_RANK, self._layout.max_rank)
        write_random(folder, dict.fromkeys(self._modules(names), rank), seed, amplitude)
        lora = Lora(f"probe-{number}", number, folder)
        await self._llm.add_lora(lora)
        return lora

    async def _remove(self, lora: Lora) -> None:
        await self._llm.remove_lora(lora.number)

    def _modules(self, names: set[str]) -> Sequence[TargetModule]:
        modules = self._layout.modules.items()
        return [module for name, module in modules if module.servable and last_name(name) in names]
