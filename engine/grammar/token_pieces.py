"""How vocabularies write bytes as text: GPT-2's alphabet of 256 characters, and SentencePiece's marks."""

import re

WORD_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[str, int]:
    # GPT-2's mapping: printable bytes stand for themselves, the others for code points from 256 on.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def from_alphabet(piece: str) -> bytes:
    """A piece of a byte-level vocabulary."""
    try:
        return bytes([_ALPHABET[character] for character in piece])
    except KeyError:  # outside the alphabet, as added tokens may be, decoders take a piece as it stands
        return piece.encode()


def from_marked(piece: str) -> bytes:
    """A piece that writes a space as U+2581."""
    return piece.replace(WORD_MARK, " ").encode()


def from_marked_or_byte(piece: str) -> bytes:
    """The same, where a byte outside the vocabulary is written as <0x0A>."""
    byte = _BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else from_marked(piece)
