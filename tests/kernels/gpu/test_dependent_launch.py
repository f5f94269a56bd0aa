"""Expand that starts while shrink still runs: the order in its machine code, and results, as if on a GPU or on one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import triton.language as tl
from simulated_memory import DEVICE
from torch import Tensor

from loragate.kernels import gpu
from loragate.kernels.base_output import Affine
from loragate.kernels.gpu import segmented_lora, shrink_expand
from loragate.kernels.gpu.segmented_lora import add_segments
from loragate.kernels.gpu.slot_tables import SlotTable
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.machine_code import Instruction, parse
from loragate.kernels.segments import DECODE, UNUSED_SLOT, Work

WAIT, TRIGGER = "ACQBULK", "PREEXIT"
"""What `griddepcontrol.wait` and `griddepcontrol.launch_dependents` are in machine code."""
WRITES = {"ST", "STG", "RED", "REDG", "ATOM", "ATOMG"}
TABLE_NUMBERS = 3 + 5 + 1 + 5  # of a tile, of a block, the number of slots with weights, and of a member
ROOT = Path(__file__).parents[3]
COMPILE = f"""
import json, sys
sys.path.append({str(ROOT)!r})
from benchmarks.lib import checkout
checkout.installed() or checkout.find_parts()
from loragate.kernels import compile as ahead
from loragate.kernels.machine_code import disassemble
wanted = [v for v in ahead.variants() if "bfloat16 dependent ROWS" in v.name]
print(json.dumps({{v.name: disassemble(ahead.compile_kernel(v, ARCH).asm["cubin"]) for v in wanted}}))
"""


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.long) for each in product((90, 100), ("rows16", "rows64"))],
    ids=str,
)
def assemblies(request: pytest.FixtureRequest) -> dict[str, str]:
    """The machine code of shrink and expand with dependent launches, by name."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    arch, rows = request.param
    command = [sys.executable, "-c", COMPILE.replace("ARCH", str(arch)).replace("ROWS", rows)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    assert len(found) == 2
    assert not [name for name, assembly in found.items() if re.search(rf"@!?U?P\w+ +({WAIT}|{TRIGGER})", assembly)]
    return found


def reached(code: list[Instruction], start: int, without: str = "") -> list[Instruction]:
    """Return the instructions that may execute from `start` on, without those behind an instruction of a name."""
    found, waiting = {start}, [start]
    while waiting:
        here = code[waiting.pop()]
        new = set(() if here.name == without else here.next) - found
        found |= new
        waiting += new
    return [code[index] for index in sorted(found)]


def test_expand_waits_before_it_ends_and_before_it_reads_what_shrink_writes(assemblies: dict[str, str]) -> None:
    for name, assembly in assemblies.items():
        if name.startswith("expand"):
            code = parse(assembly)
            before = reached(code, 0, without=WAIT)
            assert WAIT in {each.name for each in before}
            assert "EXIT" not in {each.name for each in before}, name
            assert [each.loaded_bytes for each in before if each.loaded_bytes] == [8] * TABLE_NUMBERS, name
            assert not {each.name.partition(".")[0] for each in before} & WRITES, name
            assert any("PF2" in each.name for each in before), "B is asked for"
            assert {each.loaded_bytes for each in code} > {4, 16}, "sums of shrink, and B and out"


def test_shrink_lets_expand_start_after_its_last_read(assemblies: dict[str, str]) -> None:
    for name, assembly in assemblies.items():
        if name.startswith("shrink"):
            code = parse(assembly)
            (trigger,) = (index for index, each in enumerate(code) if each.name == TRIGGER)
            behind = reached(code, trigger)
            assert not any(each.loaded_bytes for each in behind), name
            assert any(each.name.startswith("STG") for each in behind), name


def test_an_exit_before_the_wait_is_seen() -> None:
    text = "        /*0000*/               @P0 EXIT ;\n        /*0010*/                   ACQBULK ;\n"
    assert [each.name for each in reached(parse(text), 0, without=WAIT)] == ["EXIT", WAIT]


RANKS, WIDTHS, IN = (20, 0, 8), (160, 24, 24), 72
OUT = sum(WIDTHS)


def make_weights(seed: int) -> LoraWeights:
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) / 8).to(DEVICE)

    expands, start, out_start = [], 0, 0
    for rank, width in zip(RANKS, WIDTHS, strict=True):
        if rank:
            expands.append(Expand(start, start + rank, out_start, numbers(rank, width)))
        start, out_start = start + rank, out_start + width
    return LoraWeights(numbers(start, IN), tuple(expands), (Affine(0, numbers(OUT)),) if seed else ())


def results(slots: int, *, dependent: bool) -> Tensor:
    """Return the output of a step with two adapters, a slot without one, and an unneeded tile."""
    table = SlotTable(WIDTHS, IN, torch.float32, DEVICE)
    table.reserve(3, 40)
    weights = [make_weights(slot) for slot in range(slots)]
    for slot, each in enumerate(weights):
        table.put(slot, each)
    tiles = torch.tensor([(0, 0, 3), (1, 3, 1), (2, 4, 2), (UNUSED_SLOT, 0, 0)]).to(DEVICE)
    x, out = (torch.randn(6, n, generator=torch.Generator().manual_seed(n)).to(DEVICE) for n in (IN, OUT))
    add_segments(table, out, x, (Work(tiles, DECODE),), dependent=dependent)
    return out


class LateShrink:
    """A stand-in for the GPU: what shrink writes is there only once a program of expand waits for it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waits = self.triggers = 0
        self.launched: list[tuple[str, int, bool]] = []  # kernel, programs, whether it may start early
        self._written: tuple[Tensor, Tensor] | None = None
        patch.setattr(segmented_lora, "shrink_kernel", Launched(shrink_expand.shrink_kernel, self._shrink))
        patch.setattr(segmented_lora, "expand_kernel", Launched(shrink_expand.expand_kernel, self._expand))
        patch.setattr(shrink_expand, "_prefetch", lambda *_: None)  # inline assembly
        patch.setattr(tl.extra.cuda, "gdc_wait", self._wait)
        patch.setattr(tl.extra.cuda, "gdc_launch_dependents", self._trigger)

    def _shrink(self, launch: Callable[..., None], grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        self.launched.append(("shrink", torch.Size(grid).numel(), bool(options.get("launch_pdl"))))
        launch(*args, **options)
        if options["DEPENDENT"]:
            self._written = args[1], args[1].clone()
            args[1].fill_(float("nan"))

    def _expand(self, launch: Callable[..., None], grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        self.launched.append(("expand", torch.Size(grid).numel(), bool(options.get("launch_pdl"))))
        launch(*args, **options)

    def _wait(self) -> None:
        self.waits += 1
        if self._written is not None:
            shrunk, written = self._written
            shrunk.copy_(written)

    def _trigger(self) -> None:
        self.triggers += 1


class Launched:
    """A kernel whose launches go through another function."""

    def __init__(self, kernel: Any, through: Callable[..., None]) -> None:
        self._kernel, self._through = kernel, through

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **options: self._through(self._kernel[grid], grid, *args, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
@pytest.mark.parametrize("slots", [0, 2])
def test_every_program_of_expand_waits_and_computes_the_same_bits(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = results(slots, dependent=False)
    device = LateShrink(monkeypatch)
    assert torch.equal(results(slots, dependent=True), expected)
    (shrink, _, early), (expand, programs, late) = device.launched
    assert (shrink, early, expand, late) == ("shrink", False, "expand", True), "what precedes shrink is not known"
    assert device.waits == programs
    assert (device.triggers > 0) == (slots > 0)
    assert expected.isfinite().all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
def test_expand_without_shrink_is_launched_normally(monkeypatch: pytest.MonkeyPatch) -> None:
    device = LateShrink(monkeypatch)
    table = SlotTable(WIDTHS, IN, torch.float32, DEVICE)
    shift = torch.ones(OUT).to(DEVICE)
    table.put(0, LoraWeights(torch.empty(0, IN).to(DEVICE), (), (Affine(0, shift),)))
    x, out = torch.zeros(1, IN).to(DEVICE), torch.zeros(1, OUT).to(DEVICE)
    add_segments(table, out, x, (Work(torch.tensor([(0, 0, 1)]).to(DEVICE), DECODE),), dependent=True)
    assert (out == 1).all()
    assert [(kernel, early) for kernel, _, early in device.launched] == [("expand", False)]
    assert device.waits == 0


@pytest.mark.skipif(
    not torch.cuda.is_available() or not gpu.launches_dependents(DEVICE), reason="for architecture 9.0 and newer"
)
@pytest.mark.parametrize("slots", [0, 2])
def test_the_same_bits_on_a_gpu(slots: int) -> None:
    expected = results(slots, dependent=False)
    for _ in range(100):
        assert torch.equal(results(slots, dependent=True), expected)
