"""The exact bytes that each token of a `tokenizer.json` adds to a text, so that a grammar over text can choose tokens.

Two families have such bytes: byte-level vocabularies (GPT-2, Llama 3, Qwen), and those that write a space as U+2581
(SentencePiece's, with or without byte fallback: Llama 2, Mistral, Gemma). The second kind drops a space at the start
of a text; here it is kept, because a completion continues its prompt.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loragate.engine.grammar.token_pieces import (
    WORD_MARK,
    decoder_steps,
    from_alphabet,
    from_marked,
    from_marked_or_byte,
    is_byte_level,
)


class UnknownTokenizer(Exception):
    """The bytes of the tokens cannot be determined; the message says why."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The bytes of each token id; None for ids without text: special tokens, and the padding of the embeddings."""

    tokens: tuple[bytes | None, ...]
    special: dict[int, str]  # names of the special tokens


def read_vocabulary(tokenizer_json: bytes, size: int, never_text: Iterable[int]) -> Vocabulary:
    """Return the first `size` tokens. `never_text` are special in any case, such as EOS. Raise UnknownTokenizer."""
    if not tokenizer_json:
        raise UnknownTokenizer("the base model has no tokenizer.json")
    document = json.loads(tokenizer_json)
    model, added = document["model"], document.get("added_tokens") or []
    to_bytes = _reader(document.get("decoder"))
    pieces = _pieces(model)
    texts = {token_id: to_bytes(piece) for token_id, piece in pieces.items()}
    texts |= {token["id"]: token["content"].encode() for token in added}
    names = pieces | {token["id"]: token["content"] for token in added}
    special = {*never_text, *(token["id"] for token in added if token["special"]), *_unknown(model, pieces)}
    return Vocabulary(
        tuple(None if token_id in special else _text(texts.get(token_id)) for token_id in range(size)),
        {token_id: names[token_id] for token_id in special if token_id in names},
    )


def _text(token: bytes | None) -> bytes | None:
    """Return the token, or None if it has the byte 0xFF, which no text has although most vocabularies do."""
    return None if token is None or b"\xff" in token else token


def _pieces(model: dict[str, Any]) -> dict[int, str]:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        return {token_id: piece for piece, token_id in vocabulary.items()}
    if isinstance(vocabulary, list):  # unigram's, with scores
        return {token_id: piece for token_id, (piece, _) in enumerate(vocabulary)}
    raise UnknownTokenizer("its tokenizer.json lists no vocabulary")


def _unknown(model: dict[str, Any], pieces: dict[int, str]) -> list[int]:
    """Return the ids of the token for text outside the vocabulary."""
    return [i for i, piece in pieces.items() if i == model.get("unk_id") or piece == model.get("unk_token")]


def _reader(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    """Return a function from a piece to its bytes, if the file's decoder works piece by piece."""
    if is_byte_level(decoder):
        return from_alphabet
    steps = decoder_steps(decoder)
    kinds = [step["type"] for step in steps]
    unmarks = [step for step in steps if _unmarks(step)]
    others = [step for step in steps if not _unmarks(step) and not _keeps_pieces(step)]
    if not unmarks or others:
        raise UnknownTokenizer(
            f"its tokenizer's decoder ({', '.join(kinds) or 'none'}) joins tokens in an unsupported way"
        )
    return from_marked_or_byte if "ByteFallback" in kinds else from_marked


def _unmarks(decoder: dict[str, Any]) -> bool:
    if decoder["type"] == "Metaspace":
        return bool(decoder.get("replacement") == WORD_MARK)
    if decoder["type"] == "Replace":
        return bool(decoder["pattern"] == {"String": WORD_MARK} and decoder["content"] == " ")
    return False


def _keeps_pieces(decoder: dict[str, Any]) -> bool:
    """Return whether the step changes nothing except possibly the first space of a whole text."""
    if decoder["type"] == "Strip":
        return bool(decoder["content"] == " " and decoder["start"] <= 1 and decoder["stop"] == 0)
    return decoder["type"] in ("ByteFallback", "Fuse")
