"""The sizes of prompts, before they are tokenized."""

import pytest

from loragate.gateway.generation.tokenize import utf8_size

TEXTS = ["", "plain " * 30_000, "Größe 漢字 😀 " * 20_000, "\ud800 \udc00" * 40_000]


@pytest.mark.parametrize("text", TEXTS, ids=["empty", "ASCII", "other", "surrogates"])
def test_a_text_has_the_size_of_its_bytes(text: str) -> None:
    assert utf8_size(text, 10**9) == len(text.encode(errors="surrogatepass"))


def test_no_more_is_encoded_than_is_enough() -> None:
    """The whole of a body of 8 MB would hold the interpreter for milliseconds."""
    assert 1_000_000 < utf8_size("\U00012345" * 2_000_000, 1_000_000) < 1_200_000
