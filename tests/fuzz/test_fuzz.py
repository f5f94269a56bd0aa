"""Coverage-guided fuzzing of the parsers of what strangers send, and inputs that were defects once.

FUZZ_SECONDS=3600 pytest -m long tests/fuzz   # an hour, shared by the targets; a minute by default
FUZZ_SEED=7 …                                 # the same inputs again

A failure shows the smallest input that hypothesis found. Write it to `corpus/TARGET/` when the defect is mended.
"""

import os
import secrets
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings, target
from hypothesis import strategies as st

from .coverage import Arc, arcs_of
from .targets import TARGETS, Target, run_in_time

CORPUS = Path(__file__).parent / "corpus"
_ROUND = 300  # inputs, after which those that reached something new are used as seeds


@st.composite
def inputs(draw: st.DrawFn, seeds: tuple[bytes, ...], words: tuple[bytes, ...]) -> bytes:
    """Draw one of the seeds with a few pieces replaced, by words, other bytes or pieces of itself."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 12)))
        piece = st.one_of(st.just(b""), st.sampled_from(words), st.binary(max_size=4), st.just(data[start:end] * 2))
        data = data[:start] + draw(piece) + data[end:]
    return data


class Fuzzer:
    """Inputs that reach new code join the seeds."""

    def __init__(self, target: Target) -> None:
        self.seeds = list(target.seeds)
        self.arcs: set[Arc] = set()
        self.runs = 0
        self._target = target

    def round(self, number: int, runs: int = _ROUND) -> None:
        """Run some inputs, of which those with this number are always the same for the same seeds."""

        @seed(number)
        @settings(max_examples=runs, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(inputs(tuple(self.seeds), self._target.words))
        def run(raw: bytes) -> None:
            found = arcs_of(lambda: run_in_time(self._target, raw), self._target.files)
            self.runs += 1
            target(float(len(found)))
            if not found <= self.arcs:
                self.arcs |= found
                self.seeds.append(raw)

        run()


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_and_a_few_others_are_handled(name: str) -> None:
    """The fuzzer itself is in order: it reaches more than its seeds do."""
    target = TARGETS[name]
    fuzzer = Fuzzer(target)
    for raw in target.seeds:
        fuzzer.arcs |= arcs_of(lambda raw=raw: run_in_time(target, raw), target.files)  # type: ignore[misc]
    before = len(fuzzer.arcs)
    fuzzer.round(1, runs=30)
    assert len(fuzzer.arcs) > before > 10
    assert len(fuzzer.seeds) > len(target.seeds)


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}: {file.name}")
def test_an_input_that_was_a_defect(file: Path) -> None:
    run_in_time(TARGETS[file.parent.name], file.read_bytes())


def test_a_defect_is_found_and_made_small() -> None:
    def run(raw: bytes) -> None:
        if raw[:1] == b"{" and b"]" in raw:
            assert raw.count(b"]") < 2

    fuzzer = Fuzzer(Target("example", run, (b"{a: [b]}",), (b"]",), (Path(__file__).name,)))
    with pytest.raises(AssertionError):
        _rounds(fuzzer, 50)
    assert len(fuzzer.seeds) > 1, "coverage guides it"


def _rounds(fuzzer: Fuzzer, rounds: int) -> None:
    for number in range(rounds):
        fuzzer.round(number, runs=100)


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", TARGETS)
def test_fuzz(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("FUZZ_SEED", secrets.randbelow(1_000_000)))
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "60")) / len(TARGETS)
    fuzzer, first = Fuzzer(TARGETS[name]), number
    while time.monotonic() < end:
        fuzzer.round(number)
        number += 1
    with capsys.disabled():
        found = f"{fuzzer.runs} inputs, {len(fuzzer.arcs)} arcs, {len(fuzzer.seeds)} seeds"
        print(f"\n{name}: {found}, FUZZ_SEED={first}")
