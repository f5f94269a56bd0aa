"""The attach test on a tiny model, against our own engine in float32, in a process of its own (see COMMAND)."""

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch

from loragate.engine.adapters.weights.load import read_files
from loragate.engine.vllm_backend.async_llm import AsyncLlm
from loragate.engine.vllm_backend.llm import CallRejected, Llm, Lora
from loragate.engine.vllm_backend.plain_adapter import PLAIN_KINDS, write_plain
from loragate.engine.vllm_backend.probe import (
    TOLERANCE,
    Reading,
    Row,
    difference,
    read,
    read_alone,
    read_together,
    wrong_rows,
)
from loragate.engine.vllm_backend.served_model import skeleton, whole_layout
from loragate.engine.vllm_backend.tiny_model import (
    MAX_LEN,
    MAX_RANK,
    SLOTS,
    Subject,
    expectations,
    make_model,
    make_subjects,
    prompts,
)
from loragate.peft_format.plan.layout import BaseLayout

COMMAND = ("-c", "from loragate.engine.vllm_backend.tiny_check import main; main()")
"""Python's arguments. Two files follow: the arguments of this build's AsyncEngineArgs, and the report that it writes.

Not `-m`: each child that vLLM starts would import this module again.
"""


@dataclass(slots=True)
class TinyReport:
    """`targets` and `kinds` are those that were computed rightly, `failed` the targets that were not; `wrong` are
    sentences about rows that never may be wrong, `excluded` about what is not served."""

    targets: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)


class TinyCheck:
    """Runs the test at a vLLM with the tiny model and SLOTS free slots."""

    def __init__(
        self,
        llm: Llm,
        layout: BaseLayout,
        subjects: Sequence[Subject],
        expected: Mapping[str | None, list[Reading]],
        scratch: Path,
        tolerance: float = TOLERANCE["float32"],
    ) -> None:
        self._tolerance = tolerance
        self._llm = llm
        self._layout = layout
        self._subjects = subjects
        self._expected = expected
        self._scratch = scratch
        self._numbers: Iterator[int] = count(1)
        self.report = TinyReport()

    async def run(self) -> TinyReport:
        loras = await self._alone()
        await self._together(loras)
        await self._entering_and_leaving(loras)
        await self._one_name_twice(loras)
        return self.report

    async def _alone(self) -> dict[str, Lora]:
        """Read the base model and each adapter alone; keep the adapters that are right."""
        rows = self._rows(None, None)
        found = await read_alone(self._llm, rows)
        self.report.wrong += wrong_rows("alone", rows, self._expected[None], found, self._tolerance)
        kept = {}
        for subject in self._subjects:
            try:
                lora = await self._add(subject)
            except CallRejected as error:
                self._judge(subject, [f"{subject.name}: {error}"])
                continue
            rows = self._rows(subject.name, lora)
            found = await read_alone(self._llm, rows)
            if self._judge(subject, wrong_rows("alone", rows, self._expected[subject.name], found, self._tolerance)):
                kept[subject.name] = lora
            else:
                await self._llm.remove_lora(lora.number)
        return kept

    def _judge(self, subject: Subject, wrong: list[str]) -> bool:
        """Record what a subject says of its target or its kind, and return whether it was right."""
        if not wrong and subject.target is not None:
            self.report.targets.append(subject.target)
        elif not wrong and subject.kind is not None:
            self.report.kinds.append(subject.kind)
        elif subject.target is not None or subject.kind is not None:
            self.report.failed += [] if subject.target is None else [subject.target]
            self.report.excluded += wrong[:1]
        else:
            self.report.wrong += wrong
        return not wrong

    async def _together(self, loras: Mapping[str, Lora]) -> None:
        """Read all rows in one batch, those of the base model between the others."""
        rows, expected = [], []
        for name, lora in loras.items():
            rows += self._rows(name, lora) + self._rows(None, None)
            expected += self._expected[name] + self._expected[None]
        found = await read_together(self._llm, rows)
        self.report.wrong += wrong_rows("in one batch", rows, expected, found, self._tolerance)

    async def _entering_and_leaving(self, loras: dict[str, Lora]) -> None:
        """Let half of the adapters leave and come back under new numbers while the others decode."""
        names = list(loras)
        moving, staying = names[::2], names[1::2]
        rows = self._rows(None, None)
        expected = list(self._expected[None])
        for name in staying:
            rows += self._rows(name, loras[name])
            expected += self._expected[name]
        found, _ = await asyncio.gather(read_together(self._llm, rows), self._reload(loras, moving))
        self.report.wrong += wrong_rows("while adapters enter and leave", rows, expected, found, self._tolerance)
        rows, expected = [], []
        for name in names:
            rows += self._rows(name, loras[name])
            expected += self._expected[name]
        found = await read_together(self._llm, rows)
        self.report.wrong += wrong_rows("after adapters came back", rows, expected, found, self._tolerance)

    async def _reload(self, loras: dict[str, Lora], moving: Sequence[str]) -> None:
        by_name = {subject.name: subject for subject in self._subjects}
        for name in moving:
            await self._llm.remove_lora(loras[name].number)
        for name in reversed(moving):  # into other slots than before
            loras[name] = await self._add(by_name[name])

    async def _one_name_twice(self, loras: Mapping[str, Lora]) -> None:
        """Give one name to two adapters, one after the other, with prompts whose prefix is cached under one salt."""
        first, second = list(loras)[:2]
        by_name = {subject.name: subject for subject in self._subjects}
        prompt = prompts()[-1] * 3
        rows = [Row("an adapter with a name that another had", prompt, loras[second])]
        expected = await read_alone(self._llm, rows)
        for lora in loras.values():
            await self._llm.remove_lora(lora.number)
        for name in (first, second):
            lora = await self._add(by_name[name], label="one name")
            found = await read(self._llm, Row(rows[0].label, prompt, lora, salt="one salt"))
            await self._llm.remove_lora(lora.number)
        self.report.wrong += wrong_rows("one name twice", rows, expected, [found], self._tolerance)
        if not difference(expected[0], await read(self._llm, Row("", prompt)), self._tolerance):
            self.report.wrong.append("one name twice: the base model gives the same row as the adapter")

    def _rows(self, name: str | None, lora: Lora | None) -> list[Row]:
        label = "the base model" if name is None else name
        return [Row(f"{label}, prompt {place + 1}", prompt, lora) for place, prompt in enumerate(prompts())]

    async def _add(self, subject: Subject, label: str = "") -> Lora:
        number = next(self._numbers)
        folder = self._scratch / str(number)
        plan = read_files(subject.folder, self._layout).plan
        write_plain(subject.folder, plan, self._layout, folder)
        lora = Lora(label or f"tiny-{number}", number, folder)
        await self._llm.add_lora(lora)
        return lora


def precision() -> str:
    """Return the dtype of the tiny model in vLLM, whose kernels for GPUs have no LoRA in float32."""
    return "float16" if torch.cuda.is_available() else "float32"


def tiny_arguments(arguments: Mapping[str, Any], model: Path) -> dict[str, Any]:
    """Return the arguments of the served model, changed to those of the tiny one."""
    own = {
        "model": str(model),
        "dtype": precision(),
        "max_model_len": MAX_LEN,
        "max_loras": SLOTS + 1,
        "max_cpu_loras": SLOTS + 1,
        "max_lora_rank": MAX_RANK,
        "max_num_seqs": 64,
        "skip_tokenizer_init": True,
        "kv_cache_dtype": "auto",
        "quantization": None,
        "num_gpu_blocks_override": 512,
        "gpu_memory_utilization": 0.1,
    }
    return dict(arguments) | own


async def run(arguments: Mapping[str, Any], folder: Path) -> TinyReport:
    """Run the test with everything that it needs."""
    model = folder / "model"
    make_model(model)
    layout = whole_layout(skeleton(model), MAX_RANK, PLAIN_KINDS)
    subjects = make_subjects(layout, folder / "adapters")
    assert len(subjects) <= SLOTS
    expected = await asyncio.to_thread(expectations, model, subjects, folder / "cache")
    llm = AsyncLlm(tiny_arguments(arguments, model))
    try:
        return await TinyCheck(llm, layout, subjects, expected, folder / "plain", TOLERANCE[precision()]).run()
    finally:
        await llm.stop()


def main() -> None:
    arguments = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(tempfile.mkdtemp(prefix="loragate-attach-"))
    try:
        report = asyncio.run(run(arguments, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    Path(sys.argv[2]).write_text(json.dumps(asdict(report)))
