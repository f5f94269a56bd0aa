"""How the base model's text becomes tokens: its tokenizer, its chat template and the tokens that end an answer."""

import hashlib
from dataclasses import dataclass

from loragate.prompts.chat_template import ChatTemplate
from loragate.prompts.tokenizer import TextTokenizer
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class TokenizationConfig:
    """`digest` covers all other fields: the same text under the same digest gives the same tokens."""

    tokenizer: TextTokenizer
    template: ChatTemplate | None
    end_ids: tuple[int, ...]
    digest: str


def tokenization_config(manifest: pb.Manifest) -> TokenizationConfig:
    """Return the served base model's. Slow for large vocabularies (a second)."""
    special = dict(manifest.special_tokens)
    tokenizer = TextTokenizer(
        manifest.tokenizer_json, bos_token=special.get("bos_token"), add_bos=manifest.add_bos_token
    )
    template = ChatTemplate(manifest.chat_template, special, tokenizer.special_text) if manifest.chat_template else None
    end_ids = tuple(manifest.eos_token_ids)
    facts = (manifest.chat_template, sorted(special.items()), end_ids, manifest.add_bos_token)
    digest = hashlib.sha256(manifest.tokenizer_json)
    digest.update(repr(facts).encode())
    return TokenizationConfig(tokenizer, template, end_ids, digest.hexdigest())
