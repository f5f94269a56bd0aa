"""Grammars in the one form that vLLM passes on to llguidance with nothing lost: Lark.

vLLM's own forms for JSON and for regular expressions have no place for our options, such as bounded white space.
"""

import json

from loragate.engine.grammar.compiler import in_library_format
from loragate.engine.grammar.spec import Grammar, GrammarKind

_HEADER = "%llguidance"  # by which vLLM tells the dialect from others


def lark_text(grammar: Grammar) -> str:
    """Return the grammar in llguidance's dialect of Lark. Raise GrammarRejected."""
    text = grammar.text if grammar.kind is GrammarKind.LARK else _translated(grammar)
    return text if text.startswith(_HEADER) else f"{_HEADER} {{}}\n{text}"


def _translated(grammar: Grammar) -> str:
    [only] = json.loads(in_library_format(grammar))["grammars"]
    return only["lark_grammar"] or f"start: %json {json.dumps(only['json_schema'])}"
