"""From examples to tokens on disk: which tokens are learned, compared with transformers' own masks, and what a whole
file becomes.
"""

import json
import os
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thinned import thinned
from tiny_tokenizers import byte_level, sentencepiece_like
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from loragate.finetune.data.encoding import Encoder, Sample
from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.formats import Format, parse_example
from loragate.finetune.data.loss_mask import masked_texts
from loragate.finetune.data.token_cache import CachedFile, TokenCache
from loragate.finetune.data.token_file import TokenFile, TokenFileBroken, TokenFileWriter
from loragate.finetune.data.tokenization_config import TokenizationConfig, tokenization_config
from loragate.prompts.chat_template import ChatTemplate
from loragate.v1 import engine_pb2 as pb

END = "</s>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<s>bot\n' }}{% generation %}{{ m.content + '</s>' }}"
    "{% endgeneration %}{{ '\n' }}{% else %}{{ '<s>' + m.role + '\n' + m.content + '</s>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>bot\n' }}{% endif %}"
)
FORGETFUL = (  # it drops all thoughts but the last response's, and opens its own
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<s>bot\n' }}"
    "{{ m.content if loop.last else m.content.split('|')[-1] }}{{ '</s>' }}"
    "{% else %}{{ '<s>' + m.content + '</s>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>bot\n' }}{% endif %}"
)
UNLIKE_ITS_PROMPT = "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}Go: {% endif %}"
TURNS = [
    {"role": "system", "content": "The quick brown fox"},
    {"role": "user", "content": "Größe, 漢字?"},
    {"role": "assistant", "content": "jumps over 😀"},
    {"role": "user", "content": "says"},
    {"role": "assistant", "content": " lazy dogs."},
]
TOKENIZERS = [byte_level, sentencepiece_like]
SOURCE = CachedFile("tenant_a", "file_a")


def manifest(tokenizer: Tokenizer, template: str = CHAT_TEMPLATE, **others: Any) -> pb.Manifest:
    return pb.Manifest(
        tokenizer_json=tokenizer.to_str().encode(),
        chat_template=template,
        special_tokens={"bos_token": "<s>", "eos_token": END},
        eos_token_ids=[tokenizer.token_to_id(END)],
        **others,
    )


@pytest.fixture(params=thinned(TOKENIZERS, fast={byte_level}), ids=lambda make: make.__name__)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.param()


@pytest.fixture
def tokenization(tokenizer: Tokenizer) -> TokenizationConfig:
    return tokenization_config(manifest(tokenizer))


def samples_of(document: dict[str, Any], format: Format, tokenization: TokenizationConfig) -> list[Sample]:
    return Encoder(tokenization.tokenizer, tokenization.end_ids).encode(
        masked_texts(parse_example(document, format), tokenization.template)
    )


def chat(tokenization: TokenizationConfig, messages: list[dict[str, Any]]) -> list[Sample]:
    return samples_of({"messages": messages}, Format.CHAT, tokenization)


def learned_text(sample: Sample, tokenizer: Tokenizer) -> str:
    text: str = tokenizer.decode(sample.ids[sample.learned].tolist(), skip_special_tokens=False)
    return text


def test_ids_and_masks_equal_transformers(tokenizer: Tokenizer, tokenization: TokenizationConfig) -> None:
    reference = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token="<s>")
    reported = reference.apply_chat_template(
        TURNS, chat_template=CHAT_TEMPLATE, return_assistant_tokens_mask=True, return_dict=True, tokenize=True
    )
    (sample,) = chat(tokenization, TURNS)
    assert sample.ids.tolist() == reported["input_ids"]
    assert sample.learned.tolist() == [bool(mark) for mark in reported["assistant_masks"]]
    assert sample.learned.any()


def test_a_response_follows_exactly_the_tokens_of_its_prompt(tokenization: TokenizationConfig) -> None:
    (sample,) = chat(tokenization, TURNS[:3])
    assert tokenization.template is not None
    prompt = tokenization.tokenizer.encode_chat(tokenization.template.render(TURNS[:2]))
    first = int(np.argmax(sample.learned))
    assert sample.ids[:first].tolist() == prompt


def test_special_tokens_spelled_in_messages_are_text(tokenizer: Tokenizer, tokenization: TokenizationConfig) -> None:
    spelled = [
        {"role": "user", "content": "says</s><s>system"},
        {"role": "assistant", "content": "fox </s> jumps <s>"},
        {"role": "user", "content": "</s>"},
        {"role": "assistant", "content": "dogs"},
    ]
    (sample,) = chat(tokenization, spelled)
    (harmless,) = chat(tokenization, [{**turn, "content": "x"} for turn in spelled])
    special = tokenization.tokenizer.special_ids - {tokenizer.token_to_id("<unk>")}
    assert [i for i in sample.ids if i in special] == [i for i in harmless.ids if i in special]
    assert learned_text(sample, tokenizer).count("jumps") == 1, "the answer is learned to its end"
    assert sum(sample.ids[sample.learned] == tokenizer.token_to_id(END)) == 2, "each answer's own end"
    assert tokenization.template is not None
    prompt = tokenization.tokenizer.encode_chat(tokenization.template.render(spelled[:1]))
    assert sample.ids[: int(np.argmax(sample.learned))].tolist() == prompt


def test_a_response_of_weight_zero_is_not_learned(tokenizer: Tokenizer, tokenization: TokenizationConfig) -> None:
    (sample,) = chat(tokenization, [*TURNS[:2], {**TURNS[2], "weight": 0}, *TURNS[3:]])
    text = learned_text(sample, tokenizer)
    assert "jumps" not in text
    assert "lazy dogs" in text


@pytest.mark.parametrize("make", TOKENIZERS)
def test_each_response_is_a_sample_if_the_template_drops_earlier_ones(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    tokenization = tokenization_config(manifest(tokenizer, FORGETFUL))
    turns = [TURNS[1], {"role": "assistant", "content": "a|b"}, TURNS[3], {"role": "assistant", "content": "c|d"}]
    samples = chat(tokenization, turns)
    whole = [tokenizer.decode(sample.ids.tolist(), skip_special_tokens=False) for sample in samples]
    assert len(samples) == 2
    assert "a|b" in whole[0]
    assert "a" not in whole[1].replace("says", "")
    assert "c|d" in whole[1]
    assert all(tokenizer.token_to_id(END) == sample.ids[-1] for sample in samples)


def test_a_template_that_shows_responses_unlike_its_prompt_gets_the_response_after_its_prompt() -> None:
    tokenizer = byte_level()
    tokenization = tokenization_config(manifest(tokenizer, UNLIKE_ITS_PROMPT))
    (sample,) = chat(tokenization, [TURNS[1], TURNS[4]])
    text = tokenizer.decode(sample.ids.tolist(), skip_special_tokens=False)
    assert text.endswith("Go:  lazy dogs.</s>")
    assert learned_text(sample, tokenizer) == " lazy dogs.</s>"


def test_a_completion_is_learned_to_its_end_and_its_prompt_is_not(tokenizer: Tokenizer) -> None:
    tokenization = tokenization_config(manifest(tokenizer, add_bos_token=True))
    document = {"prompt": "The quick brown", "completion": " fox jumps"}
    (sample,) = samples_of(document, Format.COMPLETION, tokenization)
    assert sample.ids[0] == tokenizer.token_to_id("<s>")
    assert sample.ids[-1] == tokenizer.token_to_id(END)
    assert learned_text(sample, tokenizer).strip() == "fox jumps</s>"
    (text,) = samples_of({"text": "The quick"}, Format.TEXT, tokenization)
    assert text.learned.tolist() == [False] + [True] * (len(text.ids) - 1)


def test_a_preference_is_two_samples_the_preferred_one_first(
    tokenizer: Tokenizer, tokenization: TokenizationConfig
) -> None:
    document = {
        "input": {"messages": TURNS[:2]},
        "preferred_output": [TURNS[2]],
        "non_preferred_output": [TURNS[4]],
    }
    better, worse = samples_of(document, Format.PREFERENCE, tokenization)
    assert "jumps" in learned_text(better, tokenizer)
    assert "lazy" in learned_text(worse, tokenizer)
    first = int(np.argmax(better.learned))
    assert better.ids[:first].tolist() == worse.ids[:first].tolist()
    texts = samples_of({"prompt": "a", "chosen": "b", "rejected": "c"}, Format.TEXT_PREFERENCE, tokenization)
    assert len(texts) == 2


def test_the_templates_error_is_reported() -> None:
    template = ChatTemplate("{{ raise_exception('no systems here') }}", {})
    with pytest.raises(InvalidLine, match="no systems here"):
        masked_texts(parse_example({"messages": TURNS}, Format.CHAT), template)
    with pytest.raises(InvalidLine, match="has no chat template"):
        masked_texts(parse_example({"messages": TURNS}, Format.CHAT), None)


def jsonl(count: int, **last: Any) -> BytesIO:
    rows = [{"messages": [TURNS[1], {"role": "assistant", "content": f"says {i} " * (i + 1)}]} for i in range(count)]
    return BytesIO("\n".join(map(json.dumps, [*rows, *([last] if last else [])])).encode())


@pytest.fixture
def cache(tmp_path: Path) -> TokenCache:
    return TokenCache(tmp_path / "tokens")


def test_a_file_is_tokenized_once(cache: TokenCache, tokenization: TokenizationConfig, tmp_path: Path) -> None:
    report, tokens = cache.tokens_of(SOURCE, jsonl(700), "d1", tokenization, 64)
    assert tokens is not None
    assert (report.format, report.examples, len(tokens)) == (Format.CHAT, 700, 700)
    (direct,) = chat(tokenization, [TURNS[1], {"role": "assistant", "content": "says 3 " * 4}])
    assert tokens[3].ids.tolist() == direct.ids.tolist()
    assert tokens[3].learned.tolist() == direct.learned.tolist()
    assert tokens.facts["learned"] == sum(int(tokens[i].learned.sum()) for i in range(len(tokens)))
    assert cache.tokens_of(SOURCE, BytesIO(b"never read"), "d1", tokenization, 64)[1] is not None
    assert len(list((tmp_path / "tokens").glob("*/*/*"))) == 1
    for other in (("d2", tokenization, 64), ("d1", tokenization, 65)):
        assert cache.tokens_of(SOURCE, BytesIO(b""), *other)[1] is None


def test_the_same_content_is_tokenized_for_each_tenant(cache: TokenCache, tokenization: TokenizationConfig) -> None:
    """A tenant cannot learn from the time taken whether another tenant has it, nor get tokens that another made."""
    assert cache.tokens_of(SOURCE, jsonl(12), "d", tokenization, 64)[1] is not None
    for other in (CachedFile("tenant_b", "file_a"), CachedFile("tenant_a", "file_b")):
        assert cache.tokens_of(other, BytesIO(b""), "d", tokenization, 64)[1] is None


def test_tokens_go_with_their_file(cache: TokenCache, tokenization: TokenizationConfig, tmp_path: Path) -> None:
    other = CachedFile("tenant_b", "file_b")
    for source in (SOURCE, other):
        cache.tokens_of(source, jsonl(12), "d", tokenization, 64)
    assert sorted(cache.files(), key=str) == [SOURCE, other]
    cache.remove(SOURCE)
    assert len(cache.files()) == 2, "it was needed just now"
    cache.remove(SOURCE, in_use_seconds=0)
    assert cache.files() == [other]
    assert [folder.name for folder in (tmp_path / "tokens").iterdir()] == ["tenant_b"]


def test_tokens_that_were_shared_are_removed(cache: TokenCache, tmp_path: Path) -> None:
    """Older versions kept them by content only."""
    shared = tmp_path / "tokens" / "0123"
    with TokenFileWriter(shared) as writer:
        writer.finish({})
    cache.prune(1 << 30)
    assert not shared.exists()


def test_unused_tokens_are_removed_to_make_room(
    cache: TokenCache, tokenization: TokenizationConfig, tmp_path: Path
) -> None:
    def places() -> set[Path]:
        return set((tmp_path / "tokens").glob("*/*/*"))

    made = []
    for digest in ("a", "b", "c"):
        before = places() if made else set()
        cache.tokens_of(SOURCE, jsonl(12), digest, tokenization, 64)
        made += places() - before
    for age, place in enumerate((made[1], made[0], made[2])):  # b is the oldest
        os.utime(place, (1000 + age, 1000 + age))
    size = sum(file.stat().st_size for file in made[0].iterdir())
    cache.prune(3 * size)
    assert places() == set(made)
    cache.prune(3 * size - 1)
    assert places() == {made[0], made[2]}
    cache.tokens_of(SOURCE, BytesIO(b"never read"), "a", tokenization, 64)
    cache.prune(0)
    assert places() == {made[0]}, "it was needed just now"


def test_long_samples_are_truncated_and_those_with_nothing_left_to_learn_dropped(
    cache: TokenCache, tokenization: TokenizationConfig
) -> None:
    prompt = len(chat(tokenization, [TURNS[1], {"role": "assistant", "content": "x"}])[0].ids) - 3
    _, tokens = cache.tokens_of(SOURCE, jsonl(12), "d", tokenization, prompt + 4)
    assert tokens is not None
    assert tokens.facts["cut"] > 5
    assert max(tokens.lengths) == prompt + 4
    _, none = cache.tokens_of(SOURCE, jsonl(12), "d", tokenization, 4)
    assert none is not None
    assert (len(none), none.facts["dropped"]) == (0, 12)


def test_a_file_with_problems_has_no_tokens_and_leaves_nothing(
    cache: TokenCache, tokenization: TokenizationConfig, tmp_path: Path
) -> None:
    report, tokens = cache.tokens_of(SOURCE, jsonl(600, messages=[]), "d", tokenization, 64)
    assert tokens is None
    assert [problem.line for problem in report.problems] == [601]
    assert list((tmp_path / "tokens").glob("*/*/*")) == []


def test_an_unfinished_token_file_is_rewritten(
    cache: TokenCache, tokenization: TokenizationConfig, tmp_path: Path
) -> None:
    _, tokens = cache.tokens_of(SOURCE, jsonl(20), "d", tokenization, 64)
    assert tokens is not None
    (tokens.folder / "tokens.u32").write_bytes(b"\1\2\3\4")
    with pytest.raises(TokenFileBroken):
        TokenFile(tokens.folder)
    _, again = cache.tokens_of(SOURCE, jsonl(20), "d", tokenization, 64)
    assert again is not None
    assert len(again) == 20
    (again.folder / "facts.json").unlink()
    assert len(cache.tokens_of(SOURCE, jsonl(20), "d", tokenization, 64)[1] or ()) == 20


def test_a_sequence_is_a_view_into_the_file(tmp_path: Path) -> None:
    sample = Sample(np.arange(5, dtype=np.uint32), np.array([False, True, True, False, True]))
    with TokenFileWriter(tmp_path / "t") as writer:
        writer.add(sample)
        writer.add(sample.cut(2))
        writer.finish({"mine": 1})
    tokens = TokenFile(tmp_path / "t")
    assert [len(tokens), *tokens.lengths, tokens.facts["mine"]] == [2, 5, 2, 1]
    assert tokens[0].ids.base is not None
    assert not tokens[0].ids.flags.owndata
    assert not tokens[0].ids.flags.writeable
    assert len(pickle.dumps(tokens)) < 1000  # torch passes data sets to its loaders in this way
    with pytest.raises(IndexError, match="no sequence 2"):
        _ = tokens[2]
