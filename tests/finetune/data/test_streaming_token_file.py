"""A token file that grows while others read it: whole sequences, each once, to its end."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from loragate.finetune.data import streaming_token_file as growing
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.streaming_token_file import (
    AlreadyClosed,
    InvalidPartition,
    NoSuchSequence,
    NotClosed,
    Partition,
    StreamingFileError,
    StreamingTokenFile,
    StreamingTokenWriter,
)
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.training.trainers.rows import Row, concatenate_rows
from loragate.finetune.training.trainers.streaming_rows import StreamingRows

SEQUENCES = 3000  # more places than are reserved at first


def sample(number: int) -> Sample:
    """Return a sample that consists of its number, repeated so that it differs in length from its neighbours."""
    length = 2 + number % 7
    return Sample(np.full(length, number, np.uint32), np.arange(length) > 0)


def first_tokens(rows: list[Row]) -> list[int]:
    return [int(row["input_ids"][0]) for row in rows]


def numbers(batch: Row) -> list[int]:
    """Return the numbers of the samples in one row."""
    found: list[int] = batch["input_ids"][batch["position_ids"] == 0].tolist()
    return found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StreamingTokenWriter]:
    with StreamingTokenWriter(tmp_path / "t") as writer:
        yield writer


@pytest.fixture
def tokens(writer: StreamingTokenWriter, tmp_path: Path) -> StreamingTokenFile:
    return StreamingTokenFile(tmp_path / "t")


def grow(writer: StreamingTokenWriter, count: int) -> None:
    for _ in range(count):
        writer.add(sample(writer.sequences))
    writer.publish()


def test_published_tokens_are_readable_and_the_result_is_a_token_file(
    writer: StreamingTokenWriter, tokens: StreamingTokenFile, tmp_path: Path
) -> None:
    writer.add(sample(0))
    assert 0 not in tokens
    writer.publish()
    grow(writer, SEQUENCES - 1)
    for index in (0, 1, 1022, 1023, 1024, SEQUENCES - 1):
        assert tokens[index].ids.tolist() == sample(index).ids.tolist()
        assert tokens[index].learned.tolist() == sample(index).learned.tolist()
    assert SEQUENCES not in tokens
    writer.finish({"examples": 7})
    assert tokens.closed
    assert len(tokens) == SEQUENCES
    whole = TokenFile(tmp_path / "t")
    assert (len(whole), whole.facts) == (SEQUENCES, {"examples": 7})
    assert whole[SEQUENCES - 1].ids.tolist() == sample(SEQUENCES - 1).ids.tolist()


def test_places_are_reserved_for_the_expected_size_and_then_doubled(tmp_path: Path) -> None:
    def places(writer: StreamingTokenWriter, count: int) -> int:
        grow(writer, count)
        return (tmp_path / f"{writer._folder.name}" / growing.SLOTS).stat().st_size // 8

    with StreamingTokenWriter(tmp_path / "none") as writer:
        assert [places(writer, count) for count in (1, 1022, 1, 1023, 1)] == [1024, 1024, 2048, 2048, 4096]
    with StreamingTokenWriter(tmp_path / "many", expected=5000) as writer:
        assert [places(writer, count) for count in (1, 4999, 1)] == [5001, 5001, 10002]


def test_misuse_raises_a_named_error(writer: StreamingTokenWriter, tokens: StreamingTokenFile, tmp_path: Path) -> None:
    grow(writer, 2)
    for ask, error in (
        (lambda: tokens[2], NoSuchSequence),
        (lambda: tokens[-1], NoSuchSequence),
        (lambda: len(tokens), NotClosed),
        (lambda: StreamingRows(tokens, epochs=2).order(1), NotClosed),
        (lambda: writer.add(Sample(np.empty(0, np.uint32), np.empty(0, np.bool_))), StreamingFileError),
        (lambda: StreamingTokenWriter(tmp_path / "x", expected=-1), StreamingFileError),
        (lambda: Partition(2, 2), InvalidPartition),
        (lambda: Partition(-1, 2), InvalidPartition),
        (lambda: Partition(0, 0), InvalidPartition),
        (lambda: Partition(0, 2).place(-1), NoSuchSequence),
    ):
        with pytest.raises(error) as misused:
            ask()
        assert isinstance(misused.value, StreamingFileError)
    writer.finish({})
    for late in (lambda: writer.add(sample(0)), writer.publish, lambda: writer.finish({})):
        with pytest.raises(AlreadyClosed):
            late()
    with pytest.raises(NoSuchSequence):
        tokens[2]


@given(places=st.integers(0, 300), of=st.integers(1, 9))
def test_partitions_cover_all_places_once(places: int, of: int) -> None:
    shares = [Partition(number, of) for number in range(of)]
    found = [[share.place(index) for index in range(share.size(places))] for share in shares]
    assert sorted(place for each in found for place in each) == list(range(places))
    assert all(share.place(share.size(places)) >= places for share in shares)


@settings(max_examples=25, deadline=None)
@given(growth=st.lists(st.integers(0, 40), max_size=8), epochs=st.integers(1, 3), position=st.integers(0, 50))
def test_rows_do_not_depend_on_how_the_file_grew(
    tmp_path_factory: pytest.TempPathFactory, growth: list[int], epochs: int, position: int
) -> None:
    folder = tmp_path_factory.mktemp("grown") / "t"
    with StreamingTokenWriter(folder) as writer:
        steps = iter(growth)

        def pause() -> None:
            """Replaces the wait: something is appended, or the file is closed."""
            count = next(steps, None)
            grow(writer, count) if count is not None else writer.finish({})

        rows = StreamingRows(StreamingTokenFile(folder), epochs=epochs, seed=7, pause=pause)
        rows.position = position
        seen = first_tokens(list(rows))
    total = sum(growth)
    again = StreamingRows(StreamingTokenFile(folder), epochs=epochs, seed=7)
    whole = first_tokens(list(again))
    assert seen == whole[position:]
    assert whole[:total] == list(range(total))
    for epoch in range(1, epochs):
        assert sorted(whole[epoch * total : (epoch + 1) * total]) == list(range(total))
    assert len(whole) == total * epochs


def test_pairs_are_published_together(writer: StreamingTokenWriter, tokens: StreamingTokenFile) -> None:
    grow(writer, 3)
    steps = iter([lambda: grow(writer, 1), lambda: writer.finish({})])
    rows = list(StreamingRows(tokens, pairs=True, pause=lambda: next(steps)()))
    assert [[int(row["chosen"][0]), int(row["rejected"][0])] for row in rows] == [[0, 1], [2, 3]]


READER = """
import sys
from pathlib import Path
from loragate.finetune.data.streaming_token_file import StreamingTokenFile

tokens, whole, index = StreamingTokenFile(Path(sys.argv[1])), 0, 0
print("ready", flush=True)
while tokens.wait_for(index, lambda: None):
    ids, learned = tokens[index].ids, tokens[index].learned
    whole += len(ids) == len(learned) == 2 + index % 7 and bool((ids == index).all()) and bool(learned[1:].all())
    index += 1
print(whole)
"""


def test_another_process_never_sees_half_a_sequence(writer: StreamingTokenWriter, tmp_path: Path) -> None:
    command = [sys.executable, "-c", READER, str(tmp_path / "t")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for _ in range(SEQUENCES // 3):
            grow(writer, 3)
        writer.finish({})
        assert reader.stdout.read() == f"{SEQUENCES}\n"


@pytest.mark.long
def test_several_loaders_share_a_file_that_grows(writer: StreamingTokenWriter, tokens: StreamingTokenFile) -> None:
    """They wait when there is nothing, and end when the file is closed: everything is read, and nothing twice."""
    loader = DataLoader(
        StreamingRows(tokens, epochs=2), batch_size=2, num_workers=2, multiprocessing_context="spawn",
        collate_fn=concatenate_rows,
    )  # fmt: skip
    grow(writer, 9)
    batches = iter(loader)
    seen = [place for _ in range(4) for place in numbers(next(batches))]  # then one waits for its second row
    appending = threading.Thread(target=lambda: (grow(writer, 41), writer.finish({})))
    appending.start()
    seen += [place for batch in batches for place in numbers(batch)]
    appending.join()
    assert seen[:4] == [0, 2, 1, 3], "each has every other row"
    assert sorted(seen) == sorted(list(range(50)) * 2)


def test_a_row_interrupted_by_a_stop_is_not_lost(writer: StreamingTokenWriter, tokens: StreamingTokenFile) -> None:
    class Enough(Exception):
        pass

    def pause() -> None:
        raise Enough

    grow(writer, 5)
    rows = StreamingRows(tokens, pause=pause)
    reading = iter(rows)
    seen = [next(reading) for _ in range(5)]
    with pytest.raises(Enough):
        next(reading)
    grow(writer, 1)
    writer.finish({})
    rows.position = len(seen)
    assert first_tokens(list(rows)) == [5]
    assert torch.equal(seen[4]["position_ids"], torch.arange(len(sample(4).ids)))
