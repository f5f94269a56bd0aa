"""Small runs on a random base model, for tests and for processes that are killed during one.

python runs.py BASE TOKENS FOLDER METHOD prints each step's loss on its own line, and throttles nothing
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from tiny_tokenizers import byte_level
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.labels import LabelFacts, LabelKind, LabelSet
from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.data.token_cache import label_facts
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.jobs.hyperparameters import DpoHyperparameters
from loragate.finetune.jobs.recipe import BaseFacts, DataFacts, Recipe, resolve_recipe
from loragate.finetune.training.adapter import new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.train import train
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.trainer_arguments import Run

HIDDEN = 64
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m.role + '\n' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
EXAMPLES = 32
BASE = BaseFacts(hidden_size=HIDDEN, max_model_len=256, max_lora_rank=64)
RECIPES = {
    method: replace(
        resolve_recipe(
            DpoHyperparameters(n_epochs=2, lora_dropout=0.1), method, BASE, DataFacts(EXAMPLES, 300), seed=7
        ),
        learning_rate=2e-3,
    )
    for method in Method
}


def make_base(folder: Path) -> Path:
    """Create an untrained Llama of two layers, with a tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320, hidden_size=HIDDEN, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level(), pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def examples(method: Method, count: int = EXAMPLES) -> Iterator[list[Sample]]:
    """Return counting exercises; the rejected responses count backwards, and so does every other text to classify."""
    draw = np.random.default_rng(0)
    for number in range(count):
        ids = np.arange(3, 3 + draw.integers(5, 12), dtype=np.uint32)
        better = Sample(ids, np.arange(len(ids)) >= 2)
        worse = Sample(np.concatenate([ids[:2], ids[:1:-1]]), better.learned)
        if method is Method.CLASSIFY:
            yield [replace((better, worse)[number % 2], label=(float(number % 2),))]
        else:
            yield [better, worse] if method is Method.DPO else [better]


def make_tokens(folder: Path, method: Method) -> TokenFile:
    """Tokenize these examples."""
    half = EXAMPLES // 2
    labels = LabelFacts(LabelKind.NAME, ("up", "down"), (half, half), (1, 2))
    with TokenFileWriter(folder) as writer:
        for example in examples(method):
            for sample in example:
                writer.add(sample)
        writer.finish({"labels": labels.to_document()} if method is Method.CLASSIFY else {})
    return TokenFile(folder)


def run_training(
    base: Path,
    tokens: TokenFile | StreamingTokenFile,
    folder: Path,
    recipe: Recipe,
    on_metrics: Callable[[Metrics], None],
    *,
    stop: threading.Event | None = None,
    valid: TokenFile | None = None,
    checkpoint_steps: int = 4,
    row_tokens: int = 64,
    waits: Callable[[int], None] = lambda _: None,
    report_to: tuple[str, ...] = (),
) -> tuple[PeftModel, int]:
    """Return the trained model, and the number of steps done."""
    model = load_base(base, recipe.quantization, torch.device("cpu"))
    torch.manual_seed(recipe.seed)
    facts = label_facts(tokens) if isinstance(tokens, TokenFile) else None
    adapted = new_adapter(model, recipe, None if facts is None else LabelSet.of(facts))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    run = Run(folder, tokens, valid, row_tokens, checkpoint_steps, log_steps=1, report_to=report_to, name="ftjob-1")
    watch = RunCallback(on_metrics, stop or threading.Event(), lambda: None, waits)
    return adapted, train(adapted, tokenizer, recipe, run, watch).steps


def main() -> None:
    torch.set_num_threads(1)
    base, tokens, folder, method = sys.argv[1:]

    def report(metrics: Metrics) -> None:
        print(json.dumps([metrics.step, metrics.train_loss]), flush=True)
        sys.stdin.readline()

    run_training(Path(base), TokenFile(Path(tokens)), Path(folder), RECIPES[Method(method)], report)


if __name__ == "__main__":
    main()
