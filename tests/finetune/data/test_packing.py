"""Packed rows: no sample is lost or duplicated, and rows are deterministic and nearly full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loragate.finetune.data.packing import pack

LENGTHS = st.lists(st.integers(1, 64), max_size=200)


@given(LENGTHS)
def test_each_sample_is_in_one_row_and_no_row_is_too_long(lengths: list[int]) -> None:
    rows = pack(lengths, 64)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 64 for row in rows)
    assert rows == pack(lengths, 64)


@given(LENGTHS)
def test_no_two_rows_would_fit_into_one(lengths: list[int]) -> None:
    """Any first-fit guarantees this: at most one row is half empty."""
    sums = sorted(sum(lengths[index] for index in row) for row in pack(lengths, 64))
    assert len(sums) < 2 or sums[0] + sums[1] > 64


def test_the_fullest_row_with_room_is_chosen() -> None:
    assert pack([6, 5, 4, 3, 2], 10) == [[0, 2], [1, 3, 4]]


@pytest.mark.parametrize("length", [0, 11])
def test_samples_longer_than_a_row_are_rejected(length: int) -> None:
    with pytest.raises(ValueError, match="sample 1 has"):
        pack([3, length], 10)
