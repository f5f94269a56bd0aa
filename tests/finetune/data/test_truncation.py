"""Very long texts are tokenized up to the limit only, with the same tokens as the whole text."""

import random
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from tiny_tokenizers import CORPUS, byte_level, sentencepiece_like
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from loragate.finetune.data import truncation as beginnings
from loragate.finetune.data.encoding import Encoder, Sample
from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.loss_mask import MaskedText
from loragate.finetune.data.token_cache import FileTokenizer
from loragate.finetune.data.tokenization_config import tokenization_config
from loragate.finetune.data.truncation import Truncator
from loragate.prompts.tokenizer import TextTokenizer

LENGTH = 24
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PIECES = [*CORPUS[:3], "</s>", "<tool>", "  ", "\n", "   \n\n  ", "12345678", "'s", "e\u0301", "<", "/s>", "x" * 50]


def llama_like() -> Tokenizer:
    """A tokenizer with Llama 3's words, in composed characters; `<tool>` absorbs the white space around it."""
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(use_regex=False)])
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True)])
    return tokenizer


def wordless() -> Tokenizer:
    """A tokenizer for which a whole text is one word."""
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate("abc", 3)}, []))
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    return tokenizer


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginnings, "_MIN_CHARACTERS", 64)
    monkeypatch.setattr(beginnings, "_MAX_CHARACTERS", 1024)
    monkeypatch.setattr(beginnings, "_CHARACTERS_A_TOKEN", 1)


def reader(tokenizer: Tokenizer) -> tuple[TextTokenizer, list[int]]:
    text = TextTokenizer(tokenizer.to_str().encode(), bos_token="<s>", add_bos=True)
    return text, [tokenizer.token_to_id("</s>")]


@pytest.mark.parametrize("make", [byte_level, llama_like, sentencepiece_like], ids=lambda make: str(make.__name__))
def test_the_sample_is_that_of_the_whole_text(make: Callable[[], Tokenizer]) -> None:
    tokenizer, ends = reader(make())
    encoder, draw = Encoder(tokenizer, ends), random.Random(make.__name__)
    shortened = learned_beyond = 0
    for _ in range(300):
        text = drawn(draw)
        known = Truncator(tokenizer, ends, LENGTH).truncate(text)
        whole, short = (encoder.encode([each])[0] for each in (text, known))
        assert marked(short.cut(LENGTH)) == marked(whole.cut(LENGTH)), (text, known)
        assert (len(short.ids) > LENGTH) == (len(whole.ids) > LENGTH)
        shortened += len(known.text) < len(text.text)
        learned_beyond += known.continues
    assert shortened > 200
    assert 20 < learned_beyond < shortened


def marked(sample: Sample) -> tuple[list[int], list[bool]]:
    return sample.ids.tolist(), sample.learned.tolist()


def drawn(draw: random.Random) -> MaskedText:
    """Draw a text in which the learned part begins and ends anywhere."""
    text = "".join(draw.choice(PIECES) for _ in range(draw.randrange(8, 24)))[:900]
    places = sorted(draw.randrange(len(text)) for _ in range(4))
    spans = (places[0], places[1]), (places[2], draw.choice([places[3], len(text)]))
    return MaskedText(text, tuple(span for span in spans if span[0] < span[1]), plain=draw.random() < 0.5)


def test_without_words_a_text_is_read_whole_or_rejected() -> None:
    tokenizer, ends = reader(wordless())
    read = Truncator(tokenizer, ends, LENGTH).truncate
    long = MaskedText("abc" * 341, ((0, 1023),))
    assert read(long) is long
    with pytest.raises(InvalidLine, match=r"1026 characters is too long: .* at most 1024 are read"):
        read(MaskedText("abc" * 342, ((0, 1026),)))


def test_a_line_that_is_too_long_is_named(manifest: Any) -> None:
    added: list[Sample] = []

    class Kept:
        sequences = tokens = 0
        add = added.append

    tokenizer = FileTokenizer(Kept(), tokenization_config(manifest), LENGTH)
    words, letters = b'{"text": "%s"}\n' % (b"fox " * 3000), b'{"text": "%s"}\n' % (b"x" * 3000)
    for _ in tokenizer.take(BytesIO(words + letters)):
        pass
    assert [len(sample.ids) for sample in added] in ([], [LENGTH])
    (problem,) = tokenizer.report.problems
    assert problem.line == 2
    assert "its text of 3000 characters is too long" in problem.message
