"""The parsers of what strangers send, as functions of bytes. Each exception is a defect."""

import io
import json
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from safetensors import SafetensorError
from safetensors.numpy import load

from loragate.finetune.data.validation import MAX_PROBLEMS, validate
from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.patterns.automaton import Budget
from loragate.peft_format.patterns.pattern import FullPattern, Pattern, SuffixPattern
from loragate.peft_format.safetensors.header import read_header
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.worker.requests import forward_backward

from .http_target import run_http
from .seeds import SEEDS, WORDS

_TENSOR_BYTES = 24
_NAMES = ("", "a", "a.b", "layers.0.q_proj", "x.layers.12.mlp", "_-.0")
_SECONDS = 5.0  # of CPU time, for a few hundred bytes


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes. `seeds` are valid inputs, `words` what is often put into them; `files` are the ends of the
    names of the files that are to be covered."""

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...]
    files: tuple[str, ...]


@contextmanager
def _rejecting() -> Iterator[None]:
    """Accept that an adapter is rejected with a sentence."""
    try:
        yield
    except AdapterRejected as error:
        _check_sentence(error.message)
        _check_param(error.param)


def _check_sentence(message: str) -> None:
    assert message.isprintable(), message
    assert len(message) < 1000, message


def _check_param(param: str) -> None:
    assert param.startswith("adapter_"), param


def run_header(raw: bytes) -> None:
    """Read a header, which `raw` is without its length. What is accepted, the format's own library reads, too."""
    whole = struct.pack("<Q", len(raw)) + raw + bytes(_TENSOR_BYTES)
    with _rejecting():
        header = read_header(io.BytesIO(whole), len(whole))
        ends = sorted((spec.begin, spec.end) for spec in header.tensors.values())
        assert ends[-1][1] == header.size == len(whole)
        with suppress(KeyError):  # numpy has no bfloat16
            try:
                assert load(whole).keys() == header.tensors.keys()
            except SafetensorError as error:
                raise AssertionError(f"safetensors rejects it: {error}") from None


def run_config(raw: bytes) -> None:
    """Parse an adapter's config. What is accepted is one JSON object, with the rank that Python's parser finds."""
    with _rejecting():
        config = parse_config(raw)
        document = json.loads(raw)
        assert config.r == document.get("r", 8)
        assert config.lora_alpha == document.get("lora_alpha", 8)


def run_pattern(raw: bytes) -> None:
    """Match names with a pattern. For a short one, `re` is the oracle."""
    text = raw.decode(errors="replace")
    kinds: tuple[tuple[type[Pattern], str], ...] = ((FullPattern, "{}"), (SuffixPattern, r"(?:.*\.)?(?:{})$"))
    for kind, whole in kinds:
        with _rejecting():
            pattern = kind(text, "target_modules", Budget())
            for name in _NAMES:
                matches = pattern.matches(name)
                if len(text) <= 12 and len(name) <= 5:
                    expected = re.compile(whole.format(text))
                    assert matches is bool((expected.fullmatch if kind is FullPattern else expected.match)(name)), name


def run_lines(raw: bytes) -> None:
    """Validate a training file. Its problems are a few sentences that quote nothing of it."""
    report = validate(io.BytesIO(raw))
    assert len(report.problems) <= MAX_PROBLEMS
    assert report.examples + len(report.problems) <= raw.count(b"\n") + 1
    for problem in report.problems:
        _check_sentence(problem.message)


def run_in_time(target: Target, raw: bytes) -> None:
    """Run the target. Raise AssertionError also if it takes long."""
    started = time.process_time()
    target.run(raw)
    assert time.process_time() - started < _SECONDS, "it takes too long"


def run_training(raw: bytes) -> None:
    """Read a request of the training API as a trainer does."""
    try:
        request = forward_backward("run", raw)
    except TrainingRejected as error:
        _check_sentence(str(error))
    else:
        assert all(datum.tokens.ndim == 1 for datum in request.data)


_FILES = {
    "header": ("safetensors/header.py", "config/strict_json.py"),
    "config": ("config/lora_config.py", "config/json_fields.py", "config/acceptance.py", "config/strict_json.py"),
    "pattern": ("patterns/syntax.py", "patterns/automaton.py", "patterns/pattern.py"),
    "lines": ("data/jsonl.py", "data/formats.py", "data/validation.py", "prompts/messages.py", "prompts/tools.py"),
    "training": ("worker/requests.py",),
    "http": ("http/guarded_protocol.py", "httptools_impl.py"),
}
_RUN = {
    "header": run_header,
    "config": run_config,
    "pattern": run_pattern,
    "lines": run_lines,
    "training": run_training,
    "http": run_http,
}
TARGETS = {name: Target(name, run, SEEDS[name], WORDS[name], _FILES[name]) for name, run in _RUN.items()}
