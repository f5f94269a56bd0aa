"""Small trained tokenizers, one of each family that grammars support."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<pad>", "<s>", "</s>"]
CORPUS = [
    'The quick brown fox says "no", then jumps over 13 lazy dogs.',
    '{"name": "Ada", "age": 36, "tags": ["a", "b"], "ok": true, "none": null}',
    "Größe, naïve café, 漢字, emoji 😀 and\ttabs\n",
] * 3


def byte_level(size: int = 320) -> Tokenizer:
    """Return a tokenizer of GPT-2's kind. `<tool>` is an added token that is text, `</s>` one that is not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


def sentencepiece_like(size: int = 400) -> Tokenizer:
    """Return a tokenizer of Llama 2's kind: U+2581 for spaces, <0x..> for bytes outside the vocabulary."""
    alphabet = [f"<0x{byte:02X}>" for byte in range(256)]
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    words = size - len(alphabet) - len(SPECIAL) - 1
    trainer = trainers.UnigramTrainer(
        vocab_size=words,
        special_tokens=["<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    unigram.train_from_iterator(CORPUS[:2], trainer)
    pieces = [("<unk>", 0.0), *((token, 0.0) for token in SPECIAL), *((piece, -20.0) for piece in alphabet)]
    scores = json.loads(unigram.to_str())["model"]["vocab"][1:]  # without <unk>; equal scores come in any order
    ordered = sorted(scores, key=lambda each: (-round(each[1], 3), each[0]))
    learned = [(piece, -float(i)) for i, (piece, _) in enumerate(ordered, start=1)]
    tokenizer = Tokenizer(models.Unigram(pieces + learned, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", *SPECIAL])
    return tokenizer
