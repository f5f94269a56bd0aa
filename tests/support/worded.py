"""An engine on a tiny random model whose tokens are text, so that grammars can be used."""

import json
from pathlib import Path
from typing import Any

from tiny_models import add_adapter, make_model
from tokenizers import Tokenizer

from loragate.engine.grammar.spec import Grammar, GrammarKind
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import ErrorCode, Output

PROMPT = [40, 50, 60]
VOCABULARY = 416  # more than either tokenizer has
EOS = 2


def schema(document: dict[str, Any]) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(document))


def regex(pattern: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, pattern)


class Worded:
    """An engine on a tiny random model that has a tokenizer, and its four adapters."""

    def __init__(self, root: Path, tokenizer: Tokenizer, **config: Any) -> None:
        self.tokenizer = tokenizer
        adapters = {name: root / name for name in ("a", "b", "c", "d")}
        if not (root / "base").exists():
            model = make_model("llama", vocab_size=VOCABULARY)
            model.save_pretrained(root / "base")
            tokenizer.save(str(root / "base" / "tokenizer.json"))
            for seed, folder in enumerate(adapters.values()):
                add_adapter(model, folder, seed, r=4)
        settings = {"threads": 1, "block_size": 8, "kv_cache_tokens": 8192} | config
        self.engine = LocalEngine(root / "base", root / "cache", adapters, **settings)

    def submit(self, grammar: Grammar | None, adapter: str | None = None, **options: Any) -> int:
        options = {"max_tokens": 400, "temperature": 1.0, "ignore_eos": False} | options
        return self.engine.submit(PROMPT, adapter, grammar=grammar, **options)

    def text(self, request: int, index: int = 0) -> str:
        """Return the text of a completion without EOS."""
        return self.decoded(self.engine.tokens(request, index))

    def decoded(self, tokens: list[int]) -> str:
        """Return the text of tokens, without EOS, as the tokenizer decodes it after a first word."""
        first = self.tokenizer.encode("The", add_special_tokens=False).ids
        tokens = [t for t in tokens if t != EOS]
        return self.tokenizer.decode([*first, *tokens], skip_special_tokens=False).removeprefix("The")

    def write(self, grammar: Grammar, adapter: str | None = None, **options: Any) -> tuple[str, Output]:
        """Return a text and its final output."""
        request = self.submit(grammar, adapter, **options)
        last = self.engine.result(request)[-1]
        return self.text(request), last

    def rejection(self, grammar: Grammar) -> str:
        last = self.engine.result(self.submit(grammar))[-1]
        assert last.error is not None
        assert last.error[0] is ErrorCode.INVALID_REQUEST
        return last.error[1]
