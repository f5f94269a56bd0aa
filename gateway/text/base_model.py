"""The base model as the gateway uses it: its manifest, tokenizer, chat template, and the formats that it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loragate.gateway.reasoning import detection as reasoning
from loragate.gateway.reasoning.format import ReasoningFormat
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
    reasoning: ReasoningFormat | None = None  # None: the model does not write its reasoning apart

    @property
    def id(self) -> str:
        """The name of the base model in requests."""
        return self.manifest.model_id

    @property
    def max_model_len(self) -> int:
        """The maximum length of prompt and completion together, in tokens."""
        return self.manifest.max_model_len

    @property
    def width(self) -> int | None:
        """The length of the vectors that the last layer computes; None if the manifest does not tell."""
        manifest = self.manifest
        modules = {module.name: module for module in manifest.modules}
        head, embedding = modules.get(manifest.output_head), modules.get(manifest.input_embedding)
        if head is not None:
            return head.in_features
        return None if embedding is None else embedding.out_features

    def accepts(self, token_ids: Sequence[int]) -> bool:
        """Return whether all ids are in the vocabulary."""
        return not token_ids or (min(token_ids) >= 0 and max(token_ids) < self.manifest.vocab_size)


def read_base_model(
    manifest: pb.Manifest, tool_parser: str | None = None, reasoning_parser: str | None = None
) -> BaseModel:
    """Read the manifest. Run it in a thread: large vocabularies take a second. Raise ValueError for a broken manifest.

    `tool_parser` and `reasoning_parser` name the formats of tool calls and reasoning; None: it is detected.
    """
    special = dict(manifest.special_tokens)
    try:
        tokenizer = TextTokenizer(
            manifest.tokenizer_json, bos_token=special.get("bos_token"), add_bos=manifest.add_bos_token
        )
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"the manifest's tokenizer cannot be read: {error}") from error
    template = ChatTemplate(manifest.chat_template, special, tokenizer.special_text) if manifest.chat_template else None
    added = tokenizer.added_tokens
    format = FORMATS[tool_parser or detect(manifest.chat_template, added)]
    return BaseModel(
        manifest=manifest,
        tokenizer=tokenizer,
        chat_template=template,
        tool_format=format,
        tool_tokens=_special(tokenizer, format),
        reasoning=reasoning.reasoning_format(
            reasoning_parser or reasoning.detect(manifest.chat_template, added), tokenizer
        ),
    )


def _special(tokenizer: TextTokenizer, format: ToolFormat) -> dict[str, int]:
    tokens = {marker: tokenizer.added_tokens.get(marker) for marker in format.markers}
    return {marker: id_ for marker, id_ in tokens.items() if id_ is not None and id_ in tokenizer.special_ids}
