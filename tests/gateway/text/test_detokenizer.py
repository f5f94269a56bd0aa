"""For any tokens in any pieces, the deltas add up to the full decoding."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from loragate.gateway.text.detokenizer import detokenizer
from loragate.prompts.tokenizer import TextTokenizer
from tests.gateway import tiny_model

WORDS = ["\u2581", "\u2581The", "\u2581fox", "The", "x", ".", "\u2581\u2581", "é", "日", "\u2581🙂"]


def _byte_fallback() -> Tokenizer:
    """Return a decoder as Llama 2, Mistral and Gemma have it."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [f"<0x{byte:02X}>" for byte in range(256)] + WORDS:
        vocabulary[piece] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _metaspace() -> Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(["<unk>", *WORDS])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _word_piece() -> Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(["[UNK]", "the", "fox", "##es", "##y", ".", "'"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _suffixed() -> Tokenizer:
    """Return a decoder in which words end in a mark that becomes a space only once another token follows."""
    vocabulary = {piece: index for index, piece in enumerate(["<unk>", "a</w>", "b", "c</w>", "d"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


def _joined_by_spaces() -> Tokenizer:
    """Return a tokenizer without a decoder, whose tokens are joined by spaces."""
    return Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2, "<unk>": 3}, unk_token="<unk>"))


def _byte_level() -> Tokenizer:
    tokenizer = tiny_model.byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool call>", special=False)])
    return tokenizer


def _wrapped_byte_level() -> Tokenizer:
    tokenizer = tiny_model.byte_level_tokenizer()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel()])
    return tokenizer


MAKERS = [_byte_level, _wrapped_byte_level, _byte_fallback, _metaspace, _word_piece, _suffixed, _joined_by_spaces]
TOKENIZERS = {make.__name__: TextTokenizer(make().to_str().encode(), bos_token=None, add_bos=False) for make in MAKERS}
BYTE_LEVEL = TOKENIZERS["_byte_level"]


def _streamed(tokenizer: TextTokenizer, prompt: list[int], ids: list[int]) -> list[str]:
    stream = detokenizer(tokenizer, prompt)
    return [*(stream.push(token_id) for token_id in ids), stream.finish()]


def _continuation(tokenizer: TextTokenizer, prompt: list[int], ids: list[int]) -> str:
    return tokenizer.decode(prompt + ids)[len(tokenizer.decode(prompt)) :]


@given(st.text())
def test_any_text_of_a_byte_level_vocabulary(text: str) -> None:
    ids = BYTE_LEVEL.encode_chat(text)
    pieces = _streamed(BYTE_LEVEL, [], ids)
    assert "".join(pieces) == BYTE_LEVEL.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@given(st.lists(st.integers(0, 430), max_size=40))
def test_any_tokens_of_a_byte_level_vocabulary(ids: list[int]) -> None:
    """Broken UTF-8, special tokens and ids beyond the vocabulary included."""
    for name in ("_byte_level", "_wrapped_byte_level"):
        tokenizer = TOKENIZERS[name]
        assert tokenizer.token_bytes.byte_level
        assert "".join(_streamed(tokenizer, [], ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["_metaspace", "_word_piece", "_suffixed", "_joined_by_spaces"])
@given(data=st.data())
@settings(max_examples=50)
def test_any_tokens_of_other_vocabularies(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    token_id = st.integers(0, tokenizer.vocab_size - 1)
    prompt, ids = data.draw(st.lists(token_id, max_size=6)), data.draw(st.lists(token_id, max_size=12))
    assert "".join(_streamed(tokenizer, prompt, ids)) == _continuation(tokenizer, prompt, ids)


@given(st.text(), st.text())
def test_any_text_of_a_vocabulary_with_byte_fallback(before: str, text: str) -> None:
    tokenizer = TOKENIZERS["_byte_fallback"]
    prompt, ids = tokenizer.encode_chat(before), tokenizer.encode_chat(text)
    pieces = _streamed(tokenizer, prompt, ids)
    assert "".join(pieces) == _continuation(tokenizer, prompt, ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_space_depends_on_the_preceding_token() -> None:
    tokenizer = TOKENIZERS["_byte_fallback"]
    fox = tokenizer.encode_chat("fox")
    assert "".join(_streamed(tokenizer, [], fox)) == "fox"
    assert "".join(_streamed(tokenizer, tokenizer.encode_chat("The"), fox)) == " fox"


def test_an_unfinished_character_is_emitted_at_the_end() -> None:
    for name in ("_byte_level", "_byte_fallback"):
        tokenizer = TOKENIZERS[name]
        unfinished = tokenizer.encode_chat("\U0001f9ff")[-4:-1]
        pieces = _streamed(tokenizer, [], [*tokenizer.encode_chat("ü"), *unfinished])
        assert "".join(pieces[:-1]).strip() == "ü"
        assert pieces[-1] == tokenizer.decode(unfinished)


def test_endless_invalid_bytes_are_not_held_back_forever() -> None:
    tokenizer = TOKENIZERS["_byte_fallback"]
    stream = detokenizer(tokenizer, [])
    lone_byte = tokenizer.encode_chat("\U0001f9ff")[-1]
    assert "".join(stream.push(lone_byte) for _ in range(100)) != ""


@pytest.mark.parametrize("make", MAKERS)
@given(data=st.data())
@settings(max_examples=30)
def test_special_tokens_that_are_to_be_shown(make: Callable[[], Tokenizer], data: st.DataObject) -> None:
    """Text after a special token begins like a new text."""
    plain = make()
    plain.add_special_tokens(["[SHOWN]", "[HIDDEN]"])
    tokenizer = TextTokenizer(plain.to_str().encode(), bos_token=None, add_bos=False)
    shown, hidden = (tokenizer.added_tokens[token] for token in ("[SHOWN]", "[HIDDEN]"))
    texts = st.text() | st.sampled_from(["the foxes", "a b c", "The fox 🙂 日"])
    before, after = (tokenizer.encode_chat(data.draw(texts)) for _ in range(2))
    stream = detokenizer(tokenizer, [], [shown])
    pieces = [stream.push(token_id) for token_id in [*before, shown, hidden, *after]]
    text = "".join([*pieces, stream.finish()])
    assert text == tokenizer.decode(before) + "[SHOWN]" + tokenizer.decode(after)
