"""The base model as the gateway needs it: its manifest, its tokenizer, its chat template."""

from collections.abc import Sequence
from dataclasses import dataclass

from loragate.gateway.text.chat_template import ChatTemplate
from loragate.gateway.text.tokenizer import TextTokenizer
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Immutable; a request keeps the one it began with."""

    manifest: pb.Manifest
    tokenizer: TextTokenizer
    chat_template: ChatTemplate | None

    @property
    def id(self) -> str:
        """The name by which requests mean the base model."""
        return self.manifest.model_id

    @property
    def max_model_len(self) -> int:
        """Prompt and completion together, in tokens."""
        return self.manifest.max_model_len

    def accepts(self, token_ids: Sequence[int]) -> bool:
        """Every id is in the vocabulary."""
        return not token_ids or (min(token_ids) >= 0 and max(token_ids) < self.manifest.vocab_size)


def read_base_model(manifest: pb.Manifest) -> BaseModel:
    """Slow for large vocabularies (a second); run it in a thread. Raises ValueError on a broken manifest."""
    special = dict(manifest.special_tokens)
    try:
        tokenizer = TextTokenizer(
            manifest.tokenizer_json, bos_token=special.get("bos_token"), add_bos=manifest.add_bos_token
        )
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"the manifest's tokenizer cannot be read: {error}") from error
    template = ChatTemplate(manifest.chat_template, special) if manifest.chat_template else None
    return BaseModel(manifest, tokenizer, template)
