"""Reasoning between two tags, before the answer: `<think>…</think>`, Mistral's `[THINK]…[/THINK]`, Gemma's channel.

If the tokenizer has tokens for both tags, only these tokens divide the completion; a tag that is spelled with other
tokens is text. Otherwise the tags are found in the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from loragate.gateway.reasoning.format import Divided, ReasoningReader
from loragate.gateway.tools.text_stream import held_back
from loragate.prompts.tokenizer import TextTokenizer
from loragate.v1 import engine_pb2 as pb

_TAIL = 32  # tokens at a prompt's end among which the opening tag is looked for


@dataclass(frozen=True, slots=True)
class Tags:
    """`header` is what the model writes after the opening tag before the reasoning itself."""

    start: str
    end: str
    header: str = ""


THINK = Tags("<think>", "</think>")
MISTRAL = Tags("[THINK]", "[/THINK]")
GEMMA = Tags("<|channel>", "<channel|>", header="thought\n")


class TaggedReasoning:
    """The format for the tokens of one tokenizer."""

    def __init__(self, tags: Tags, tokenizer: TextTokenizer) -> None:
        self._tags = tags
        self._tokenizer = tokenizer
        start, end = tokenizer.added_tokens.get(tags.start), tokenizer.added_tokens.get(tags.end)
        self._ids = None if start is None or end is None else (start, end)

    answer_headers: Sequence[str] = ()

    def is_open(self, prompt: Sequence[int]) -> bool:
        """Return whether the prompt ends with the opening tag, as some templates write it."""
        tail = prompt[-_TAIL:]
        if self._ids is not None and self._ids[0] not in tail:
            return False
        text = b"".join(map(self._tokenizer.token_bytes, tail)).decode(errors="replace").rstrip()
        return text.endswith((self._tags.start, self._tags.start + self._tags.header.rstrip()))

    def reader(self, *, is_open: bool, calls: bool) -> ReasoningReader:
        """Return a reader for one completion."""
        if self._ids is None:
            return _TextReader(self._tags, is_open=is_open)
        return _TokenReader(self._tags, self._ids, is_open=is_open)

    def thinking(self, *, is_open: bool, max_tokens: int | None) -> pb.Thinking | None:
        """Return the first segment: it starts with the opening token, unless it is open, and ends with the closing
        one."""
        if self._ids is None:
            return None
        start, end = self._ids
        closing = self._tokenizer.encode_chat(f"\n{self._tags.end}\n\n")
        forced = closing if end in closing else [end]
        return pb.Thinking(start=[start], end=forced, end_marker=[end], open=is_open, max_tokens=max_tokens)


class _State(Enum):
    START = "only white space so far"
    REASONING = "between the tags"
    ANSWER = "after the tags"


class _Reader:
    """Removes the white space around the reasoning, and before an answer that follows reasoning."""

    def __init__(self, tags: Tags, *, is_open: bool) -> None:
        self._tags = tags
        self._state = _State.START
        self._blank = ""  # at the start, or at the end of the reasoning so far
        self._strips = False  # nothing but white space was read since the last tag
        self._header = self._seen = ""  # the header that may come, and what was read of it
        if is_open:
            self._open()

    def _open(self) -> None:
        self._state, self._blank, self._strips, self._header = _State.REASONING, "", True, self._tags.header

    def _close(self) -> None:
        self._state, self._blank, self._strips = _State.ANSWER, "", True

    def _reasoning(self, text: str) -> str:
        text = self._stripped(self._without_header(text))
        kept = text.rstrip()
        if not kept:
            self._blank += text
            return ""
        before, self._blank = self._blank, text[len(kept) :]
        return before + kept

    def _without_header(self, text: str) -> str:
        if not self._header:
            return text
        self._seen += text
        if len(self._seen) < len(self._header) and self._header.startswith(self._seen):
            return ""
        header, self._header = self._header, ""
        return self._seen.removeprefix(header)

    def _stripped(self, text: str) -> str:
        if self._strips:
            text = text.lstrip()
            self._strips = not text
        return text


class _TokenReader(_Reader):
    """Divides at the tags' tokens."""

    def __init__(self, tags: Tags, ids: tuple[int, int], *, is_open: bool) -> None:
        super().__init__(tags, is_open=is_open)
        self._start, self._end = ids

    def push(self, token_id: int, text: str) -> Divided:
        if self._state is _State.ANSWER:
            return Divided(answer=self._stripped(text))
        if self._state is _State.REASONING:
            if token_id != self._end:
                return Divided(self._reasoning(text), is_reasoning=True)
            last = self._reasoning(text.removesuffix(self._tags.end))
            self._close()
            return Divided(last, is_reasoning=True)
        if token_id == self._start:
            self._open()
            return Divided(is_reasoning=True)
        self._blank += text
        if not self._blank.strip():
            return Divided()
        self._state = _State.ANSWER
        return Divided(answer=self._blank)

    def finish(self, text: str) -> Divided:
        if self._state is _State.REASONING:
            return Divided(self._reasoning(text))
        blank = self._blank if self._state is _State.START else ""
        return Divided(answer=blank + self._stripped(text))


class _TextReader(_Reader):
    """Divides where the text spells the tags, however it is divided into tokens."""

    def __init__(self, tags: Tags, *, is_open: bool) -> None:
        super().__init__(tags, is_open=is_open)
        self._text = ""  # what may be part of a tag

    def push(self, token_id: int, text: str) -> Divided:
        before = self._state
        self._text += text
        self._read_start()
        reasoning = self._read_reasoning()
        return Divided(reasoning, self._read_answer(), before is _State.REASONING or self._state is _State.REASONING)

    def finish(self, text: str) -> Divided:
        divided = self.push(-1, text)
        rest, self._text = self._text, ""
        if self._state is _State.REASONING:
            return divided._replace(reasoning=divided.reasoning + self._reasoning(rest))
        return divided._replace(answer=divided.answer + rest)

    def _read_start(self) -> None:
        if self._state is not _State.START:
            return
        text = self._text.lstrip()
        if text.startswith(self._tags.start):
            self._text = text[len(self._tags.start) :]
            self._open()
        elif not self._tags.start.startswith(text):
            self._state = _State.ANSWER

    def _read_reasoning(self) -> str:
        if self._state is not _State.REASONING:
            return ""
        at = self._text.find(self._tags.end)
        if at < 0:
            size = len(self._text) - held_back(self._text, (self._tags.end,))
            text, self._text = self._text[:size], self._text[size:]
            return self._reasoning(text)
        text, self._text = self._text[:at], self._text[at + len(self._tags.end) :]
        reasoning = self._reasoning(text)
        self._close()
        return reasoning

    def _read_answer(self) -> str:
        if self._state is not _State.ANSWER:
            return ""
        text, self._text = self._text, ""
        return self._stripped(text)
