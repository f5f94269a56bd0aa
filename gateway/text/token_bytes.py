"""What each token of a vocabulary contributes to the text, as bytes.

For byte-level vocabularies this is exact: a text is the UTF-8 decoding of its tokens' bytes, one after the other.
For the others it describes a token by itself, as logprobs show it; their text depends on the neighbours.
"""

import re
from typing import Any

from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_WORD_MARK = "\u2581"


def _byte_alphabet() -> dict[str, int]:
    # GPT-2's mapping: printable bytes stand for themselves, the others for code points from 256 on.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


class TokenBytes:
    """Token id → bytes. Ids beyond the vocabulary, which padded embeddings have, contribute nothing."""

    def __init__(self, tokenizer: Tokenizer, decoder: dict[str, Any] | None) -> None:
        self._tokenizer = tokenizer
        self.byte_level = _is_byte_level(decoder)
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}

    def __call__(self, token_id: int) -> bytes:
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None:
            return b""
        if self.byte_level:
            return _from_alphabet(piece)
        if token_id in self._added:
            return piece.encode()
        byte = _BYTE_TOKEN.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace(_WORD_MARK, " ").encode()


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    if decoder is None:
        return False
    if decoder["type"] == "Sequence":
        return [inner["type"] for inner in decoder["decoders"]] == ["ByteLevel"]
    return bool(decoder["type"] == "ByteLevel")


def _from_alphabet(piece: str) -> bytes:
    try:
        return bytes([_ALPHABET[character] for character in piece])
    except KeyError:  # an added token with characters outside the alphabet is taken as it stands
        return piece.encode()
