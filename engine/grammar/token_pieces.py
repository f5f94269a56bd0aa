"""The ways in which vocabularies write bytes as text: GPT-2's alphabet of 256 characters, and SentencePiece's marks."""

import re
from typing import Any

WORD_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[str, int]:
    # GPT-2's mapping: printable bytes stand for themselves, the others for code points from 256 on.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def from_alphabet(piece: str) -> bytes:
    """Return the bytes of a piece of a byte-level vocabulary."""
    try:
        return bytes([_ALPHABET[character] for character in piece])
    except KeyError:  # decoders leave a piece outside the alphabet, such as an added token, unchanged
        return piece.encode()


def from_marked(piece: str) -> bytes:
    """Return the bytes of a piece that writes a space as U+2581."""
    return piece.replace(WORD_MARK, " ").encode()


def from_marked_or_byte(piece: str) -> bytes:
    """Return the same, where a byte outside the vocabulary is written as <0x0A>."""
    byte = _BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else from_marked(piece)


def decoder_steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of the decoder of a `tokenizer.json`."""
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def is_byte_level(decoder: dict[str, Any] | None) -> bool:
    """Return whether the decoder of a `tokenizer.json` is that of a byte-level vocabulary."""
    return [step["type"] for step in decoder_steps(decoder)] == ["ByteLevel"]
