"""Examples as text, with the parts marked that the model learns.

What comes before an answer is rendered as the gateway renders it when it asks for that answer, so the model learns to
go on from what it will see. Most templates show a conversation as its prompts and answers one after the other; of one
that does not (it drops reasoning from earlier turns, say) each answer becomes a sample of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import Completion, Conversation, Example, Preference, Text, TextPreference
from loragate.prompts.chat_template import ChatTemplate, TemplateError
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import template_messages
from loragate.prompts.tools import Tool

Span = tuple[int, int]  # characters [start, stop)


@dataclass(frozen=True, slots=True)
class MaskedText:
    """`plain` text gets the special tokens that the tokenizer puts around a text; a rendered chat has its own. Of one
    that `continues` more is learned than what is there."""

    text: str
    learned: tuple[Span, ...]
    plain: bool = False
    continues: bool = False

    def beginning(self, size: int) -> "MaskedText":
        """Its first characters."""
        learned = tuple((start, min(stop, size)) for start, stop in self.learned if start < size)
        continues = any(start < stop and stop >= size for start, stop in self.learned)
        return MaskedText(self.text[:size], learned, self.plain, continues)


def marked(example: Example, template: ChatTemplate | None) -> list[MaskedText]:
    """Samples of an example to learn from; of a preference two, the better answer first. Raises InvalidLine."""
    match example:
        case Text(text=text):
            return [MaskedText(text, ((0, len(text)),), plain=True)]
        case Completion(prompt=prompt, completion=completion):
            return [_after(prompt, completion)]
        case TextPreference(prompt=prompt, chosen=chosen, rejected=rejected):
            return [_after(prompt, chosen), _after(prompt, rejected)]
    if template is None:
        raise InvalidLine("the base model has no chat template: use prompts with completions, or texts", "messages")
    try:
        return list(_marked_chat(example, template))
    except TemplateError as error:
        raise InvalidLine(f"the base model's chat template refuses it: {error}", "messages") from None


def _marked_chat(example: Conversation | Preference, template: ChatTemplate) -> Iterator[MaskedText]:
    if isinstance(example, Conversation):
        yield from _Chat(template, example.messages, example.tools or ()).marked()
        return
    for answer in (*example.preferred_output, *example.non_preferred_output):
        chat = _Chat(template, [*example.input.messages, answer], example.input.tools or ())
        yield chat.answer(len(example.input.messages))


class _Chat:
    """One conversation under its template."""

    def __init__(self, template: ChatTemplate, messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> None:
        self._template = template
        self._messages = messages
        self._shown = template_messages(messages, template.traits)
        self._tools = [tool.for_template() for tool in tools]

    def marked(self) -> Iterator[MaskedText]:
        """In one sample if the template allows it."""
        learned = [index for index, message in enumerate(self._messages) if getattr(message, "learned", False)]
        whole = self._text(len(self._messages))
        spans = [self._span(index, whole) for index in learned]
        if all(spans):
            yield MaskedText(whole, tuple(span for span in spans if span))
        else:
            yield from map(self.answer, learned)

    def answer(self, index: int) -> MaskedText:
        """One message alone, after all that came before it."""
        prompt, shown = self._text(index, prompt=True), self._text(index + 1)
        if not shown.startswith(prompt):
            shown = prompt + self._bare(index)
        return MaskedText(shown, ((len(prompt), len(shown)),))

    def _span(self, index: int, whole: str) -> Span | None:
        prompt = self._text(index, prompt=True)
        shown = whole if index + 1 == len(self._messages) else self._text(index + 1)
        if whole.startswith(shown) and shown.startswith(prompt):
            return len(prompt), len(shown)
        return None

    def _bare(self, index: int) -> str:
        message = self._messages[index]
        if message.content is None or message.tool_calls:
            raise InvalidLine("the base model's chat template shows its calls otherwise than they are generated")
        return message.content

    def _text(self, count: int, *, prompt: bool = False) -> str:
        return self._template.render(self._shown[:count], self._tools, prompt=prompt)


def _after(prompt: str, text: str) -> MaskedText:
    return MaskedText(prompt + text, ((len(prompt), len(prompt) + len(text)),), plain=True)
