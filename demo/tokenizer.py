"""A byte-level BPE tokenizer: any text can be encoded and decoded without loss."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from loragate.demo.chat_format import CHAT_TEMPLATE, END, PAD, SPECIAL_TOKENS, VISIBLE_TOKENS, Sample

# A capital letter or a digit never shares a token with the space before it. So a name has the same tokens in a question
# and in a call's JSON.
_WORDS = r" ?\p{Ll}+|\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s"
# A word that begins with a capital letter is cut in pairs of letters, a number in pairs of digits. Training contains
# all the usual pairs often, so that the model can copy a name that it has never seen: longer tokens would be rare ones,
# and single letters or digits occur too often in a text to find one's place by.
_PAIRS = r"\A\p{Lu}\p{Ll}|\G(?<=\p{L})\p{Ll}{1,2}"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a tokenizer. `vocabulary` includes the special tokens and the 256 bytes, which come first, and the visible
    tokens, which come last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.Split(Regex(_PAIRS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(VISIBLE_TOKENS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    visible = re.compile("|".join(VISIBLE_TOKENS))
    tokenizer.train_from_iterator((part for text in texts for part in visible.split(text)), trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in VISIBLE_TOKENS])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, directory: Path, max_length: int) -> None:
    """Write `tokenizer.json`, which `tokenizers` reads, and `tokenizer_config.json`, which transformers also needs."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "eos_token": END,
        "pad_token": PAD,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a token that must exist."""
    found = tokenizer.token_to_id(token)
    assert found is not None, token
    return int(found)


def encode(tokenizer: Tokenizer, sample: Sample) -> tuple[list[int], list[bool]]:
    """Return the token ids, and for each whether it is learned."""
    ids: list[int] = []
    learned: list[bool] = []
    for piece in sample:
        piece_ids = tokenizer.encode(piece.text, add_special_tokens=False).ids
        ids += piece_ids
        learned += [piece.learned] * len(piece_ids)
    return ids, learned
