"""Token counts updated incrementally, compared with counts from scratch."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from loragate.engine.sequence.token_counts import TokenCounts

tokens = st.lists(st.integers(0, 300), max_size=200)


@given(prompt=tokens.filter(bool), pieces=st.lists(tokens, max_size=4))
def test_incremental_counts_equal_counts_from_scratch(prompt: list[int], pieces: list[list[int]]) -> None:
    counts, generated = TokenCounts(prompt), list[int]()
    for piece in ([], *pieces):
        generated += piece
        counts.update(prompt + generated)
        assert sorted(counts.all.tolist()) == sorted({*prompt, *generated})
        ids, numbers = counts.generated
        assert dict(zip(ids.tolist(), numbers.tolist(), strict=True)) == Counter(generated)
