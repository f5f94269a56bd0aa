"""Detection of the format in which a model writes its reasoning, from its chat template and its tokens."""

from collections.abc import Callable, Collection, Mapping

from loragate.gateway.reasoning.format import ReasoningFormat
from loragate.gateway.reasoning.harmony import Harmony
from loragate.gateway.reasoning.tags import GEMMA, MISTRAL, THINK, TaggedReasoning
from loragate.gateway.tools.formats.harmony import CHANNEL, MESSAGE
from loragate.prompts.tokenizer import TextTokenizer

_Maker = Callable[[TextTokenizer], ReasoningFormat]

FORMATS: Mapping[str, _Maker | None] = {
    "think": lambda tokenizer: TaggedReasoning(THINK, tokenizer),
    "mistral": lambda tokenizer: TaggedReasoning(MISTRAL, tokenizer),
    "gemma": lambda tokenizer: TaggedReasoning(GEMMA, tokenizer),
    "harmony": Harmony,
    "none": None,
}

# The first format whose marks are all in the template; otherwise the first whose marks are all tokens.
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", (CHANNEL, MESSAGE)),
    ("gemma", (GEMMA.start, GEMMA.end)),
    ("mistral", (MISTRAL.start,)),
    ("think", (THINK.end,)),
)


def detect(template: str, tokens: Collection[str]) -> str:
    """Return the format's name, "none" for a model that does not reason."""
    for text in (template, tokens):
        for name, marks in _MARKS:
            if all(mark in text for mark in marks):
                return name
    return "none"


def reasoning_format(name: str, tokenizer: TextTokenizer) -> ReasoningFormat | None:
    """Return the format of this name for the tokenizer. Raise ValueError for harmony without its tokens."""
    if name == "harmony" and not Harmony.is_known(tokenizer):
        raise ValueError("the reasoning parser 'harmony' needs a tokenizer with harmony's special tokens")
    make = FORMATS[name]
    return None if make is None else make(tokenizer)
