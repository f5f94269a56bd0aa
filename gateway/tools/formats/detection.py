"""Detection of the format that a model writes, from its chat template and its tokens."""

from collections.abc import Collection, Mapping

from loragate.gateway.tools.format import ToolFormat
from loragate.gateway.tools.formats.deepseek import CALL_BEGIN, DeepSeek
from loragate.gateway.tools.formats.glm import Glm
from loragate.gateway.tools.formats.harmony import CHANNEL, MESSAGE, HarmonyCalls
from loragate.gateway.tools.formats.hermes import OPEN, Hermes
from loragate.gateway.tools.formats.llama_json import TAG, LlamaJson
from loragate.gateway.tools.formats.mistral import ARGS, CALLS, Mistral
from loragate.gateway.tools.formats.pythonic import START, Pythonic
from loragate.gateway.tools.formats.qwen3_coder import FUNCTION, Qwen3Coder

FORMATS: Mapping[str, ToolFormat] = {
    "hermes": Hermes(),
    "llama_json": LlamaJson(),
    "mistral": Mistral(named=False),
    "mistral_named": Mistral(named=True),
    "pythonic": Pythonic(),
    "qwen3_coder": Qwen3Coder(),
    "glm": Glm(),
    "deepseek": DeepSeek(fenced=True),
    "deepseek_v3_1": DeepSeek(fenced=False),
    "harmony": HarmonyCalls(),
}

# The first format whose marks are all in the template; otherwise the first whose marks are all tokens.
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("harmony", (CHANNEL, MESSAGE)),
    ("mistral_named", (CALLS, ARGS)),
    ("mistral", (CALLS,)),
    ("deepseek", (CALL_BEGIN, "```json")),
    ("deepseek_v3_1", (CALL_BEGIN,)),
    ("qwen3_coder", (FUNCTION,)),
    ("glm", ("<arg_key>",)),
    ("hermes", (OPEN,)),
    ("pythonic", ("func_name1(",)),
    ("llama_json", (TAG,)),
    ("llama_json", ('"parameters":',)),
    ("pythonic", (START,)),
)


def detect(template: str, tokens: Collection[str]) -> str:
    """Return the format's name. The template has priority: some tokens were never used in the model's training."""
    for text in (template, tokens):
        for name, marks in _MARKS:
            if all(mark in text for mark in marks):
                return name
    return "hermes"
