"""The base model as the gateway uses it: its manifest, tokenizer, chat template and tool-call format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.formats.detection import FORMATS, detect
from loragate.prompts.chat_template import ChatTemplate
from loragate.prompts.tokenizer import TextTokenizer
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Immutable; a request uses the same one from start to end."""

    manifest: pb.Manifest
    tokenizer: TextTokenizer
    chat_template: ChatTemplate | None
    tool_format: ToolFormat
    tool_tokens: Mapping[str, int]  # those of the format's tokens that the tokenizer marks as special

    @property
    def id(self) -> str:
        """The name of the base model in requests."""
        return self.manifest.model_id

    @property
    def max_model_len(self) -> int:
        """The maximum length of prompt and completion together, in tokens."""
        return self.manifest.max_model_len

    def accepts(self, token_ids: Sequence[int]) -> bool:
        """Return whether all ids are in the vocabulary."""
        return not token_ids or (min(token_ids) >= 0 and max(token_ids) < self.manifest.vocab_size)


def read_base_model(manifest: pb.Manifest, tool_parser: str | None = None) -> BaseModel:
    """Read the manifest. Run it in a thread: large vocabularies take a second. Raise ValueError for a broken manifest.

    `tool_parser` is the name of the tool-call format; if it is None, the format is detected.
    """
    special = dict(manifest.special_tokens)
    try:
        tokenizer = TextTokenizer(
            manifest.tokenizer_json, bos_token=special.get("bos_token"), add_bos=manifest.add_bos_token
        )
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"the manifest's tokenizer cannot be read: {error}") from error
    template = ChatTemplate(manifest.chat_template, special, tokenizer.special_text) if manifest.chat_template else None
    format = FORMATS[tool_parser or detect(manifest.chat_template, tokenizer.added_tokens)]
    return BaseModel(
        manifest=manifest,
        tokenizer=tokenizer,
        chat_template=template,
        tool_format=format,
        tool_tokens=_special(tokenizer, format),
    )


def _special(tokenizer: TextTokenizer, format: ToolFormat) -> dict[str, int]:
    tokens = {marker: tokenizer.added_tokens.get(marker) for marker in format.markers}
    return {marker: id_ for marker, id_ in tokens.items() if id_ is not None and id_ in tokenizer.special_ids}
