"""The innermost loop of a compiled kernel, read from its machine code; a GPU is not needed.

The disassembler comes with Triton. Only counts are taken that say what a loop costs on any GPU of the architecture: the
instructions that a warp executes in an iteration, and the widths of its loads. Stalls and latencies are not predicted.
"""

import re
import subprocess
import tempfile
from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from triton import knobs

WARP = 32  # threads
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+ )?(?P<name>[A-Z][\w.]*)(?P<rest>[^;]*);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_LOADS = ("LDG", "LDGSTS")  # to registers, and to shared memory
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
_WIDEST = 16
_REGISTER = 4  # bytes that a load without a width reads


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction, and the indices of those that may follow it."""

    name: str
    next: tuple[int, ...]

    @property
    def loaded_bytes(self) -> int:
        """The bytes of the GPU's memory that it reads for each thread."""
        kind, *modifiers = self.name.split(".")
        if kind not in _LOADS:
            return 0
        return next((_WIDTHS[each] for each in modifiers if each in _WIDTHS), _REGISTER)


@dataclass(frozen=True, slots=True)
class Loop:
    """The innermost loop of a kernel."""

    instructions: int  # of a warp, in an iteration
    loads: Mapping[int, int]  # those that are loads, by the bytes that each reads for a thread
    outside: int  # instructions that a warp executes once, before and after the loop

    @property
    def loaded_bytes(self) -> int:
        """The bytes that a warp reads, including those that masks leave out."""
        return WARP * sum(width * count for width, count in self.loads.items())


def disassemble(cubin: bytes) -> str:
    """Return the instructions of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.nvdisasm.path, "-c", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def innermost_loop(assembly: str) -> Loop | None:
    """Return the innermost loop that reads memory, or None if there is none.

    Of several, it is the first that is reached, except that those with narrow loads, for rare cases, come last.
    Branches take their shortest way, as those for rarely used options do.
    """
    code = parse(assembly)
    ways = {way[-1]: way for i in range(len(code)) if code[i].loaded_bytes and (way := _shortest_way(code, i, {i}))}
    ranges = {(min(way), max(way)) for way in ways.values()}
    innermost = [way for way in ways.values() if not any(_encloses(way, other) for other in ranges)]
    if not innermost:
        return None
    narrowest = {way[-1]: min(code[i].loaded_bytes or _WIDEST for i in way) for way in innermost}
    way = min(innermost, key=lambda way: (-narrowest[way[-1]], len(_shortest_way(code, 0, set(way))), len(way)))
    widths = Counter(code[each].loaded_bytes for each in way)
    ends = {index for index, instruction in enumerate(code) if not instruction.next}
    through = len(_shortest_way(code, 0, {way[-1]})) + len(_shortest_way(code, way[-1], ends)) + 1
    loads = {width: widths[width] for width in sorted(widths, reverse=True) if width}
    return Loop(len(way), loads, through - len(way))


def _encloses(way: Sequence[int], other: tuple[int, int]) -> bool:
    """Return whether another loop lies strictly between the ends of this one."""
    return min(way) < other[0] and other[1] < max(way)


def parse(assembly: str) -> list[Instruction]:
    """Return the instructions of a disassembly, in order."""
    lines: list[re.Match[str]] = []
    labels: dict[str, int] = {}
    for line in assembly.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif instruction := _INSTRUCTION.match(line):
            lines.append(instruction)
    return [Instruction(line["name"], _next(line, i, labels)) for i, line in enumerate(lines)]


def _next(line: re.Match[str], index: int, labels: Mapping[str, int]) -> tuple[int, ...]:
    kind = line["name"].partition(".")[0]
    target = _TARGET.search(line["rest"])
    conditional = line["guard"] or "P" in line["rest"].partition("`")[0] or ".DIV" in line["name"]
    if kind == "BRA" and target and target[1] in labels:
        return (labels[target[1]], index + 1) if conditional else (labels[target[1]],)
    return () if kind in ("EXIT", "RET", "BRA", "BRX") and not conditional else (index + 1,)


def _shortest_way(code: Sequence[Instruction], start: int, ends: Set[int]) -> list[int]:
    """Return the instructions from `start` to one of `ends`, which is left out; empty if there is no way."""
    previous: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for following in code[here].next:
            if following in ends:
                way = [here]
                while way[-1] != start:
                    way.append(previous[way[-1]])
                return way
            if following < len(code) and following not in previous:
                previous[following] = here
                waiting.append(following)
    return []
