"""GPT-OSS' harmony: messages in channels, of which `analysis` is the reasoning and `final` the answer.

`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`. A tool call is a message in
`commentary` to the function: `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`; a
message there without a recipient is a preamble for the user. Source: OpenAI, "OpenAI Harmony Response Format", 2025.
"""

from collections.abc import Sequence

from loragate.gateway.reasoning.format import Divided, ReasoningReader
from loragate.gateway.tools.formats.harmony import CHANNEL, END, MARKS, MESSAGE, RECIPIENT, START
from loragate.prompts.tokenizer import TextTokenizer
from loragate.v1 import engine_pb2 as pb

ANALYSIS = "analysis"


class Harmony:
    """The format for the tokens of one tokenizer, which must have them all."""

    answer_headers = (f"{CHANNEL}final{MESSAGE}", f"{START}assistant{CHANNEL}final{MESSAGE}")

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids = {mark: tokenizer.added_tokens[mark] for mark in MARKS}
        self._marks = {id_: mark for mark, id_ in self._ids.items()}
        opening = f"{CHANNEL}{ANALYSIS}{MESSAGE}"
        self._opening = tokenizer.encode_chat(opening)

    @classmethod
    def is_known(cls, tokenizer: TextTokenizer) -> bool:
        """Return whether the tokenizer has the format's tokens."""
        return tokenizer.added_tokens.keys() >= set(MARKS)

    def is_open(self, prompt: Sequence[int]) -> bool:
        """Return whether the prompt ends with the header of an analysis."""
        return list(prompt[-len(self._opening) :]) == self._opening

    def reader(self, *, is_open: bool, calls: bool) -> ReasoningReader:
        """Return a reader for one completion."""
        return _Reader(self._marks, is_open=is_open, calls=calls)

    def thinking(self, *, is_open: bool, max_tokens: int | None) -> pb.Thinking:
        """Return the first segment: an analysis, up to its end."""
        return pb.Thinking(start=self._opening, end=[self._ids[END]], open=is_open, max_tokens=max_tokens)


class _Reader:
    """Follows the messages. Text before the first header, which a model in this format does not write, is an answer."""

    def __init__(self, marks: dict[int, str], *, is_open: bool, calls: bool) -> None:
        self._marks = marks
        self._calls = calls
        self._header: str | None = None  # of the message whose body has not begun
        self._channel = ANALYSIS if is_open else ""
        self._is_call = False

    def push(self, token_id: int, text: str) -> Divided:
        mark = self._marks.get(token_id)
        if mark is None:
            return self._text(text)
        text = text.removesuffix(mark)  # what the detokenizer held back until now
        before = self._text(text) if text else Divided()
        after = self._mark(mark)
        return Divided(before.reasoning, before.answer + after.answer, after.is_reasoning)

    def finish(self, text: str) -> Divided:
        return self._text(text)

    def _text(self, text: str) -> Divided:
        if self._header is not None:
            self._header += text
            return Divided(is_reasoning=True)
        if self._channel == ANALYSIS:
            return Divided(reasoning=text, is_reasoning=True)
        return Divided(answer="" if self._is_call and not self._calls else text)

    def _mark(self, mark: str) -> Divided:
        if mark in (START, CHANNEL):
            self._header = "" if self._header is None or mark == START else self._header + mark
            return Divided(is_reasoning=True)
        if self._header is not None:
            return self._in_header(mark)
        was_analysis = self._channel == ANALYSIS
        ended_call = self._is_call
        self._channel, self._is_call = "", False
        return Divided(answer=mark if ended_call and self._calls else "", is_reasoning=was_analysis)

    def _in_header(self, mark: str) -> Divided:
        assert self._header is not None
        if mark != MESSAGE:
            self._header += mark
            return Divided(is_reasoning=True)
        header, self._header = self._header, None
        channel = header.rpartition(CHANNEL)[2]
        self._channel = channel.split(maxsplit=1)[0] if channel.strip() else ""
        recipient = RECIPIENT.search(header)  # in the role or in the channel
        self._is_call = recipient is not None
        if recipient is not None:
            self._channel = "commentary"  # some calls are written in the analysis
            return Divided(answer=f"{CHANNEL}commentary {recipient[0]}{MESSAGE}" if self._calls else "")
        return Divided(is_reasoning=self._channel == ANALYSIS)
