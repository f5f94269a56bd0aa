"""Examples as text, with the spans that the loss counts.

The text before an answer is rendered exactly as the gateway renders it when it asks for that answer, so the model
trains on the prompts that it will be served. Under most templates a whole conversation is the concatenation of its
prompts and answers. Where that does not hold (for example because the template drops reasoning from earlier turns),
each answer becomes a sample of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import (
    Completion,
    Conversation,
    Example,
    LabelledChat,
    LabelledText,
    Preference,
    Text,
    TextPreference,
)
from loragate.prompts.chat_template import ChatTemplate, TemplateError
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import template_messages
from loragate.prompts.tools import Tool

Span = tuple[int, int]  # characters [start, stop)
LabelNumbers = tuple[float, ...]
"""A label as a file of tokens stores it: a number itself, names as their numbers in the order of the file."""

_FILE_RENDERING = 20_000_000  # messages rendered for any file; about two minutes
_BYTES_A_RENDERING = 4
_CHARACTERS_A_RENDERING = 256  # take as long as another message


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A text and its learned spans, or a text to classify and its `label`.

    The tokenizer adds its special tokens to a `plain` text; a rendered chat already contains its own. If `continues`,
    the text is a prefix, and its last learned span continues beyond it.
    """

    text: str
    learned: tuple[Span, ...]
    plain: bool = False
    continues: bool = False
    label: LabelNumbers | None = None

    @property
    def has_prompt(self) -> bool:
        """Whether something precedes what is learned."""
        return not self.learned or self.learned[0][0] > 0

    def prefix(self, size: int) -> "MaskedText":
        """Return the first `size` characters."""
        learned = tuple((start, min(stop, size)) for start, stop in self.learned if start < size)
        continues = any(start < stop and stop >= size for start, stop in self.learned)
        return replace(self, text=self.text[:size], learned=learned, continues=continues)


class RenderingBudget:
    """The work that one training file may cause in the template.

    A conversation is rendered up to each of its answers, so that the work grows with the square of its length: a
    gigabyte of long conversations without text would take days. A file has a fixed amount, and a rendered message for
    every few bytes, which is more than ordinary conversations need.
    """

    def __init__(self) -> None:
        self._left = _FILE_RENDERING

    def add(self, size: int) -> None:
        """Add what a line of `size` bytes may take."""
        self._left += size // _BYTES_A_RENDERING

    def spend(self, messages: int, text: str) -> None:
        """Spend what rendering this many messages as this text took. Raise InvalidLine beyond the budget."""
        self._left -= messages + len(text) // _CHARACTERS_A_RENDERING
        if self._left < 0:
            raise InvalidLine(
                "the conversations up to this line have too many answers to render the messages before each: split "
                "long conversations, or give earlier answers the weight 0",
                "messages",
            )


def masked_texts(
    example: Example, template: ChatTemplate | None, budget: RenderingBudget | None = None
) -> list[MaskedText]:
    """Return the samples of an example: two for a preference, the better answer first. Raise InvalidLine."""
    match example:
        case Text(text=text):
            return [MaskedText(text, ((0, len(text)),), plain=True)]
        case Completion(prompt=prompt, completion=completion):
            return [_after(prompt, completion)]
        case TextPreference(prompt=prompt, chosen=chosen, rejected=rejected):
            return [_after(prompt, chosen), _after(prompt, rejected)]
        case LabelledText(text=text):
            return [MaskedText(text, (), plain=True)]
    if template is None:
        raise InvalidLine("the base model has no chat template: use texts, or prompts with completions", "messages")
    try:
        return list(_masked_chat(example, template, budget or RenderingBudget()))
    except TemplateError as error:
        raise InvalidLine(f"the base model's chat template rejects it: {error}", "messages") from None


def _masked_chat(
    example: Conversation | Preference | LabelledChat, template: ChatTemplate, budget: RenderingBudget
) -> Iterator[MaskedText]:
    if isinstance(example, LabelledChat):
        yield _Chat(template, budget, example.messages, ()).classified()
        return
    if isinstance(example, Conversation):
        yield from _Chat(template, budget, example.messages, example.tools or ()).samples()
        return
    for answer in (*example.preferred_output, *example.non_preferred_output):
        chat = _Chat(template, budget, [*example.input.messages, answer], example.input.tools or ())
        yield chat.answer(len(example.input.messages))


class _Chat:
    """One conversation under its template."""

    def __init__(
        self, template: ChatTemplate, budget: RenderingBudget, messages: Sequence[ChatMessage], tools: Sequence[Tool]
    ) -> None:
        self._template = template
        self._budget = budget
        self._messages = messages
        self._rendered = template_messages(messages, template.traits)
        self._tools = [tool.for_template() for tool in tools]

    def samples(self) -> Iterator[MaskedText]:
        """Yield one sample with every answer if the template allows it, otherwise a sample for each answer."""
        learned = [index for index, message in enumerate(self._messages) if getattr(message, "learned", False)]
        whole = self._text(len(self._messages))
        spans = [self._span(index, whole) for index in learned]
        if all(spans):
            yield MaskedText(whole, tuple(span for span in spans if span))
        else:
            yield from map(self.answer, learned)

    def answer(self, index: int) -> MaskedText:
        """Return a sample that learns one message, after all messages before it."""
        prompt, rendered = self._text(index, prompt=True), self._text(index + 1)
        if not rendered.startswith(prompt):
            rendered = prompt + self._bare(index)
        return MaskedText(rendered, ((len(prompt), len(rendered)),))

    def classified(self) -> MaskedText:
        """Return the whole conversation, in which nothing is learned."""
        return MaskedText(self._text(len(self._messages)), ())

    def _span(self, index: int, whole: str) -> Span | None:
        prompt = self._text(index, prompt=True)
        rendered = whole if index + 1 == len(self._messages) else self._text(index + 1)
        if whole.startswith(rendered) and rendered.startswith(prompt):
            return len(prompt), len(rendered)
        return None

    def _bare(self, index: int) -> str:
        message = self._messages[index]
        if message.content is None or message.tool_calls:
            raise InvalidLine(
                "the base model's chat template renders tool calls differently from how the model generates them"
            )
        text: str = self._template.special_text.marked(message.content)
        return text

    def _text(self, count: int, *, prompt: bool = False) -> str:
        text = self._template.render(self._rendered[:count], self._tools, prompt=prompt)
        self._budget.spend(count, text)
        return text


def _after(prompt: str, text: str) -> MaskedText:
    return MaskedText(prompt + text, ((len(prompt), len(prompt) + len(text)),), plain=True)
