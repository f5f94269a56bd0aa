"""The bytes of tokens, compared with what the tokenizer itself decodes."""

import json
import random
from collections.abc import Callable

import pytest
from tiny_tokenizers import CORPUS, byte_level, sentencepiece_like
from tokenizers import Tokenizer

from loragate.engine.grammar.tokenizer import TokenSpace, build_tokenizer
from loragate.engine.grammar.vocabulary import UnknownTokenizer, Vocabulary, read_vocabulary

SIZE = 420  # more than either vocabulary: embeddings are padded
MAKERS = [byte_level, sentencepiece_like]


def vocabulary(tokenizer: Tokenizer, never_text: tuple[int, ...] = ()) -> Vocabulary:
    return read_vocabulary(tokenizer.to_str().encode(), SIZE, never_text)


def text_of(tokens: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(tokens.tokens[i] or b"" for i in ids)


@pytest.mark.parametrize("make", MAKERS)
def test_any_tokens_decode_to_their_bytes(make: Callable[[], Tokenizer]) -> None:
    """The tokens follow a first word, because a text's own first space may be dropped."""
    tokenizer = make()
    tokens = vocabulary(tokenizer)
    texts = [i for i, token in enumerate(tokens.tokens) if token is not None]
    first = tokenizer.encode("The", add_special_tokens=False).ids
    start = tokenizer.decode(first)
    drawn = random.Random(0)
    whole = 0
    for _ in range(3000):
        ids = drawn.choices(texts, k=drawn.randint(1, 4))
        try:
            expected = text_of(tokens, ids).decode()
        except UnicodeDecodeError:
            continue  # half a character has no text to compare with
        whole += 1
        assert tokenizer.decode([*first, *ids], skip_special_tokens=False) == start + expected
    assert whole > 100


@pytest.mark.parametrize("make", MAKERS)
def test_every_text_equals_the_bytes_of_its_tokens(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    tokens = vocabulary(tokenizer)
    for text in (*CORPUS, "ünseen ✓ \x00\x7f <tool> {}"):
        assert text_of(tokens, tokenizer.encode(text, add_special_tokens=False).ids).decode().removeprefix(" ") == text


@pytest.mark.parametrize("make", MAKERS)
def test_tokens_without_text_have_no_bytes(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    ordinary = tokenizer.encode("dogs", add_special_tokens=False).ids[-1]
    tokens = vocabulary(tokenizer, never_text=(ordinary,))
    specials = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    beyond = set(range(tokenizer.get_vocab_size(), SIZE))
    byte_ff = {i for i in range(SIZE) if tokenizer.id_to_token(i) in ("ÿ", "<0xFF>")}
    assert {i for i, token in enumerate(tokens.tokens) if token is None} == specials | beyond | byte_ff | {ordinary}
    assert set(tokens.special) == specials | {ordinary}


def test_an_added_token_may_be_text() -> None:
    tokenizer = byte_level()
    assert vocabulary(tokenizer).tokens[tokenizer.token_to_id("<tool>")] == b"<tool>"


def test_a_decoder_that_joins_tokens_is_rejected_with_the_reason() -> None:
    document = json.loads(byte_level().to_str())
    for decoder in (None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "Fuse"}):
        document["decoder"] = decoder
        with pytest.raises(UnknownTokenizer, match="joins tokens"):
            read_vocabulary(json.dumps(document).encode(), SIZE, ())
    with pytest.raises(UnknownTokenizer, match=r"no tokenizer\.json"):
        read_vocabulary(b"", SIZE, ())


@pytest.mark.parametrize("make", MAKERS)
def test_the_library_has_the_same_bytes_and_splits_text_exactly(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    space = TokenSpace(tokenizer.to_str().encode(), SIZE, frozenset([2, 3]))
    built, tokens = build_tokenizer(space), read_vocabulary(space.tokenizer_json, SIZE, space.eos)
    assert built.vocab_size == SIZE
    assert sorted(built.eos_tokens) == [2, 3]
    for token_id, text in enumerate(tokens.tokens):
        assert built.is_special_token(token_id) == (text is None)
        assert text is None or built.decode_bytes([token_id]) == text
    for text in (*CORPUS, '"name":', " spaced", "unseen ✓", "<s> is text here", ""):
        assert text_of(tokens, built.tokenize_str(text)).decode() == text
    for text in (" jumps over", " quick"):
        assert built.tokenize_str(text) == tokenizer.encode(text, add_special_tokens=False).ids
