"""Reasoning and answers, read from streams that are cut anywhere, with tokens for the marks and without."""

import pytest
from tokenizers import AddedToken

from loragate.gateway.reasoning.detection import FORMATS, detect, reasoning_format
from loragate.gateway.reasoning.format import ReasoningFormat
from loragate.gateway.text.detokenizer import detokenizer
from loragate.gateway.tools.formats.harmony import MARKS
from loragate.prompts.tokenizer import TextTokenizer
from tests.gateway.tiny_model import byte_level_tokenizer

THOUGHT = "Größe? <b>2 < 3</b>\n\nSo 🙂: </thin"
ANSWER = "The answer is </b> 3. 日本"

TAGS = {
    "think": ("<think>\n", "\n</think>\n\n"),
    "mistral": ("[THINK]", "[/THINK]"),
    "gemma": ("<|channel>thought\n", "\n<channel|>"),
}
MARKS_OF = {"think": ["<think>", "</think>"], "mistral": ["[THINK]", "[/THINK]"], "gemma": ["<|channel>", "<channel|>"]}


def tokenizer_with(*tokens: str, special: bool = True) -> TextTokenizer:
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token in tokens])
    return TextTokenizer(tokenizer.to_str().encode(), bos_token=None, add_bos=False)


def format_of(name: str, tokenizer: TextTokenizer) -> ReasoningFormat:
    found = reasoning_format(name, tokenizer)
    assert found is not None
    return found


def read_text(format: ReasoningFormat, pieces: list[str], *, is_open: bool = False) -> tuple[str, str]:
    reader = format.reader(is_open=is_open, calls=False)
    read = [reader.push(5, piece) for piece in pieces] + [reader.finish("")]
    return "".join(each.reasoning for each in read), "".join(each.answer for each in read)


def read_tokens(
    tokenizer: TextTokenizer, format: ReasoningFormat, text: str, *, is_open: bool = False, calls: bool = False
) -> tuple[str, str, int]:
    reader = format.reader(is_open=is_open, calls=calls)
    decoded = detokenizer(tokenizer, [])
    read = [reader.push(id_, decoded.push(id_)) for id_ in tokenizer.encode_chat(text)]
    read.append(reader.finish(decoded.finish()))
    counted = sum(each.is_reasoning for each in read)
    return "".join(each.reasoning for each in read), "".join(each.answer for each in read), counted


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("is_open", [False, True])
def test_text_without_tokens_for_the_tags_cut_at_every_character(name: str, is_open: bool) -> None:
    start, end = TAGS[name]
    format = format_of(name, tokenizer_with())
    text = ("" if is_open else f"\n{start}") + THOUGHT + end + ANSWER
    for cut in range(len(text) + 1):
        pieces = [text[:cut], text[cut:]]
        assert read_text(format, pieces, is_open=is_open) == (THOUGHT, ANSWER), cut
    assert read_text(format, list(text), is_open=is_open) == (THOUGHT, ANSWER)


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_tokens_of_the_tags(name: str, special: bool, is_open: bool) -> None:
    start, end = TAGS[name]
    tokenizer = tokenizer_with(*MARKS_OF[name], special=special)
    text = ("" if is_open else start) + THOUGHT + end + ANSWER
    reasoning, answer, counted = read_tokens(tokenizer, format_of(name, tokenizer), text, is_open=is_open)
    assert (reasoning, answer) == (THOUGHT, ANSWER)
    closing = tokenizer.added_tokens[MARKS_OF[name][1]]
    assert counted == tokenizer.encode_chat(text).index(closing) + 1


def test_a_tag_spelled_with_other_tokens_is_text() -> None:
    tokenizer = tokenizer_with("<think>", "</think>")
    format = format_of("think", tokenizer)
    spelled = tokenizer_with().encode_chat("a </think> b")  # the same vocabulary, without the two tokens
    reader = format.reader(is_open=True, calls=False)
    decoded = detokenizer(tokenizer, [])
    read = [reader.push(id_, decoded.push(id_)) for id_ in spelled]
    assert "".join(each.reasoning for each in read) == "a </think> b"
    assert not any(each.answer for each in read)


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("text", ["Plain.", " \n Plain.", "", "<b>", "thought\nNo."])
def test_an_answer_without_reasoning(name: str, by_token: bool, text: str) -> None:
    tokenizer = tokenizer_with(*(MARKS_OF[name] if by_token else ()))
    assert read_tokens(tokenizer, format_of(name, tokenizer), text) == ("", text, 0)


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("by_token", [False, True])
def test_reasoning_that_never_ends_and_empty_reasoning(name: str, by_token: bool) -> None:
    tokenizer = tokenizer_with(*(MARKS_OF[name] if by_token else ()))
    format = format_of(name, tokenizer)
    start, end = TAGS[name]
    assert read_tokens(tokenizer, format, f"{start}{THOUGHT}")[:2] == (THOUGHT, "")
    assert read_tokens(tokenizer, format, f"{start}{end}{ANSWER}")[:2] == ("", ANSWER)


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("by_token", [False, True])
def test_whether_a_prompt_ends_inside_the_reasoning(name: str, by_token: bool) -> None:
    tokenizer = tokenizer_with(*(MARKS_OF[name] if by_token else ()))
    format = format_of(name, tokenizer)
    start, end = TAGS[name]
    for prompt, is_open in (
        (f"user\nHi\nassistant\n{start}", True),
        (f"{start}x{end}user\nHi\nassistant\n", False),
        (f"assistant\n{start}{end}", False),
        (f"{start}What is that?\nassistant\n", False),
        ("", False),
    ):
        assert format.is_open(tokenizer.encode_chat(prompt)) is is_open, prompt


ANALYSIS = f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
FINAL = f"<|start|>assistant<|channel|>final<|message|>{ANSWER}"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Ulm"}<|call|>'


def harmony() -> tuple[TextTokenizer, ReasoningFormat]:
    tokenizer = tokenizer_with(*MARKS)
    return tokenizer, format_of("harmony", tokenizer)


def test_harmony_reads_channels() -> None:
    tokenizer, format = harmony()
    reasoning, answer, counted = read_tokens(tokenizer, format, ANALYSIS + FINAL + "<|return|>")
    assert (reasoning, answer) == (THOUGHT, ANSWER)
    assert counted == len(tokenizer.encode_chat(ANALYSIS + "<|start|>assistant<|channel|>final"))
    assert read_tokens(tokenizer, format, f"<|channel|>final<|message|>{ANSWER}")[:2] == ("", ANSWER)


def test_harmony_s_preamble_is_for_the_user() -> None:
    tokenizer, format = harmony()
    text = ANALYSIS + "<|start|>assistant<|channel|>commentary<|message|>I will look.<|end|>" + FINAL
    assert read_tokens(tokenizer, format, text)[:2] == (THOUGHT, f"I will look.{ANSWER}")


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Ulm"}<|call|>',
        CALL.replace("commentary", "analysis"),
    ],
)
def test_harmony_s_calls_stay_in_the_answer_only_with_tools(call: str) -> None:
    tokenizer, format = harmony()
    text = ANALYSIS + "<|start|>assistant" + call
    reasoning, answer, _ = read_tokens(tokenizer, format, text, calls=True)
    assert reasoning == THOUGHT
    assert "to=functions.weather" in answer
    assert answer.endswith('<|message|>{"city": "Ulm"}<|call|>')
    assert read_tokens(tokenizer, format, text, calls=False)[:2] == (THOUGHT, "")


def test_harmony_needs_its_tokens() -> None:
    with pytest.raises(ValueError, match="harmony's special tokens"):
        reasoning_format("harmony", tokenizer_with())


def test_the_first_segment_for_the_engine() -> None:
    tokenizer = tokenizer_with("<think>", "</think>")
    start, end = tokenizer.added_tokens["<think>"], tokenizer.added_tokens["</think>"]
    thinking = format_of("think", tokenizer).thinking(is_open=False, max_tokens=9)
    assert thinking is not None
    assert list(thinking.start) == [start]
    assert list(thinking.end_marker) == [end]
    assert list(thinking.end) == tokenizer.encode_chat("\n</think>\n\n")
    assert (thinking.max_tokens, thinking.open) == (9, False)
    assert format_of("think", tokenizer_with()).thinking(is_open=True, max_tokens=9) is None


# Written after the documentation of each family; only what tells them apart matters here.
TEMPLATES = {
    "qwen3": ("think", "{% if '</think>' in content %}{{ content.split('</think>')[-1] }}{% endif %}"),
    "deepseek_r1": ("think", "{{ '<｜Assistant｜><think>\n' }}{{ content.split('</think>')[-1] }}"),
    "glm": ("think", "{{ '<|assistant|>\n' }}{% if not enable_thinking %}{{ '<think></think>' }}{% endif %}"),
    "nemotron": ("think", "{{ '<think>' }}{% if not enable_thinking %}{{ '</think>' }}{% endif %}"),
    "minimax": ("think", "{{ ']~b]ai\n<think>\n' }}{{ '</think>' in content }}"),
    "magistral": ("mistral", "{{ '[THINK]' + block['thinking'] + '[/THINK]' }}"),
    "gemma": ("gemma", "{{ '<|channel>thought\n' }}{{ '<channel|>' }}"),
    "gpt_oss": ("harmony", "{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking }}"),
    "llama": ("none", "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"),
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_detection(family: str) -> None:
    name, template = TEMPLATES[family]
    assert detect(template, []) == name
    assert name in FORMATS


def test_the_tokens_decide_if_the_template_says_nothing() -> None:
    assert detect("", ["[THINK]", "[/THINK]"]) == "mistral"
    assert detect(TEMPLATES["gpt_oss"][1], ["<think>", "</think>"]) == "harmony"
