"""The texts of a response's output: messages and reasoning."""

from collections.abc import Iterator, Sequence

from loragate.gateway.generation import output as generated
from loragate.gateway.objects.inference.logprobs import TokenLogprob, token_logprobs
from loragate.gateway.objects.inference.response_item import BriefAlternative, BriefLogprob, GrowingItem, ResponseEvent
from loragate.gateway.objects.inference.responses import (
    ItemStatus,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)
from loragate.prompts.tokenizer import TextTokenizer


class MessageItem(GrowingItem):
    """A message of the model."""

    def __init__(self, response_id: str, index: int, tokenizer: TextTokenizer, numbers: Iterator[int]) -> None:
        super().__init__(response_id, "msg", index, numbers)
        self._tokenizer = tokenizer
        self._text = ""
        self._logprobs: list[TokenLogprob] = []

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the events of an empty message with one empty part."""
        item: OutputMessage = {**self.document("in_progress"), "content": []}
        yield self.added(item)
        yield self.event("response.content_part.added", content_index=0, part=self._part)

    def more(self, text: str, logprobs: Sequence[generated.TokenLogprob]) -> ResponseEvent:
        """Append to the text; return the event."""
        self._text += text
        entries = token_logprobs(self._tokenizer, logprobs)
        self._logprobs += entries
        brief = [_brief(entry) for entry in entries]
        return self.event("response.output_text.delta", content_index=0, delta=text, logprobs=brief)

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole text, the part and the message."""
        brief = [_brief(entry) for entry in self._logprobs]
        yield self.event("response.output_text.done", content_index=0, text=self._text, logprobs=brief)
        yield self.event("response.content_part.done", content_index=0, part=self._part)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> OutputMessage:
        """Return the message as it is now."""
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": [self._part]}

    @property
    def _part(self) -> OutputText:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(self._logprobs)}


class ThoughtItem(GrowingItem):
    """The reasoning of the model.

    With `summarized`, the text is also the summary, which is all that some clients show.
    """

    def __init__(self, response_id: str, index: int, numbers: Iterator[int], *, summarized: bool) -> None:
        super().__init__(response_id, "rs", index, numbers)
        self._summarized = summarized
        self._text = ""

    def opened(self) -> Iterator[ResponseEvent]:
        """Yield the events of an empty item."""
        item: ReasoningItem = {**self.document("in_progress"), "content": [], "summary": []}
        yield self.added(item)
        if self._summarized:
            yield self.event("response.reasoning_summary_part.added", summary_index=0, part=self._summary)
        yield self.event("response.content_part.added", content_index=0, part=self._part)

    def more(self, text: str) -> Iterator[ResponseEvent]:
        """Append to the reasoning; yield the events."""
        self._text += text
        if self._summarized:
            yield self.event("response.reasoning_summary_text.delta", summary_index=0, delta=text)
        yield self.event("response.reasoning_text.delta", content_index=0, delta=text)

    def closed(self, status: ItemStatus) -> Iterator[ResponseEvent]:
        """Yield the events of the whole reasoning."""
        if self._summarized:
            yield self.event("response.reasoning_summary_text.done", summary_index=0, text=self._text)
            yield self.event("response.reasoning_summary_part.done", summary_index=0, part=self._summary)
        yield self.event("response.reasoning_text.done", content_index=0, text=self._text)
        yield self.event("response.content_part.done", content_index=0, part=self._part)
        yield self.done(self.document(status))

    def document(self, status: ItemStatus) -> ReasoningItem:
        """Return the item as it is now."""
        return {
            "id": self.id,
            "type": "reasoning",
            "status": status,
            "summary": [self._summary] if self._summarized else [],
            "content": [self._part],
            "encrypted_content": None,
        }

    @property
    def _part(self) -> ReasoningText:
        return {"type": "reasoning_text", "text": self._text}

    @property
    def _summary(self) -> SummaryText:
        return {"type": "summary_text", "text": self._text}


def _brief(entry: TokenLogprob) -> BriefLogprob:
    """Return the entry without bytes, as events have it."""
    alternatives: list[BriefAlternative] = [
        {"token": each["token"], "logprob": each["logprob"]} for each in entry["top_logprobs"]
    ]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": alternatives}
