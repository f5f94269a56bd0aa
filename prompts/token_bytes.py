"""What each token of a vocabulary contributes to the text, as bytes.

For byte-level vocabularies this is exact: a text is the UTF-8 decoding of its tokens' bytes, one after the other.
For the others it describes a token by itself, as logprobs show it; their text depends on the neighbours.
"""

from typing import Any

from tokenizers import Tokenizer

from loragate.engine.grammar.token_pieces import from_alphabet, from_marked_or_byte, is_byte_level


class TokenBytes:
    """Token id → bytes. Ids beyond the vocabulary, which padded embeddings have, contribute nothing."""

    def __init__(self, tokenizer: Tokenizer, decoder: dict[str, Any] | None) -> None:
        self._tokenizer = tokenizer
        self.byte_level = is_byte_level(decoder)
        self._added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}
        self._known: dict[int, bytes] = {}

    def __call__(self, token_id: int) -> bytes:
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._bytes_of(token_id)
        return known

    def _bytes_of(self, token_id: int) -> bytes:
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None:
            return b""
        if self.byte_level:
            return from_alphabet(piece)
        if token_id in self._added:
            return piece.encode()
        return from_marked_or_byte(piece)
