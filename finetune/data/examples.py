"""The kinds of example that a line of a training file can hold, in OpenAI's formats, TRL's, and with labels."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from loragate.peft_format.config.labels import MAX_LABEL_CHARACTERS
from loragate.prompts.bodies import Body, field_error
from loragate.prompts.messages import ChatMessage, check_tool_results
from loragate.prompts.tools import MAX_TOOLS, Tool, tool_names

MAX_MESSAGES = 4096
MAX_LABELS = 1000  # of one file
MAX_LABEL_NUMBER = 1_000_000  # of classes that are numbers, and of scores

SomeText = Annotated[str, StringConstraints(min_length=1)]


class TrainingMessage(ChatMessage):
    """A message of a conversation. With `weight` 0, an assistant message is not learned."""

    weight: Literal[0, 1] | None = None

    @model_validator(mode="after")
    def _weight_is_the_assistants(self) -> "TrainingMessage":
        if self.weight is not None and self.role != "assistant":
            raise field_error("weight", "it is only allowed in messages of role 'assistant'")
        return self

    @property
    def learned(self) -> bool:
        """Whether the loss counts this message."""
        return self.role == "assistant" and self.weight != 0


def _require_content(answer: ChatMessage, path: str) -> None:
    """Raise a field error for an empty answer: there would be nothing to learn from it."""
    if not answer.content and not answer.tool_calls:
        raise field_error(f"{path}.content", "it is empty: there would be nothing to learn")


Messages = Annotated[list[TrainingMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
Answer = Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=1)]


class _WithTools(Body):
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _names_differ(self) -> "_WithTools":
        tool_names(self.tools or ())
        return self


class Conversation(_WithTools):
    """A chat. Every assistant message is learned, unless its weight is 0."""

    messages: Messages

    @model_validator(mode="after")
    def _teaches(self) -> "Conversation":
        last = len(self.messages) - 1
        if self.messages[last].role != "assistant":
            raise field_error(f"messages.{last}.role", "the last message must be the assistant's")
        check_tool_results(self.messages[:last])
        if not any(message.learned for message in self.messages):
            raise field_error("messages", "every assistant message has weight 0: there is nothing to learn")
        for position, message in enumerate(self.messages):
            if message.learned:
                _require_content(message, f"messages.{position}")
        return self


class Completion(Body):
    """A prompt as plain text, without a template, and the completion to learn."""

    prompt: str
    completion: SomeText


class Text(Body):
    """A plain text, all of which is learned."""

    text: SomeText


class PreferenceInput(_WithTools):
    """The conversation that both answers of a preference reply to."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]

    @model_validator(mode="after")
    def _awaits_an_answer(self) -> "PreferenceInput":
        last = len(self.messages) - 1
        if self.messages[last].role == "assistant":
            raise field_error(
                f"messages.{last}.role", "the last message must not be the assistant's: the two outputs reply to it"
            )
        check_tool_results(self.messages)
        return self


class Preference(Body):
    """Two assistant messages that reply to the same conversation, one better than the other."""

    input: PreferenceInput
    preferred_output: Answer
    non_preferred_output: Answer

    @model_validator(mode="after")
    def _answers_differ(self) -> "Preference":
        for name in ("preferred_output", "non_preferred_output"):
            if getattr(self, name)[0].role != "assistant":
                raise field_error(f"{name}.0.role", "it must be 'assistant'")
            _require_content(getattr(self, name)[0], f"{name}.0")
        if self.preferred_output == self.non_preferred_output:
            raise field_error("non_preferred_output", "it is the same as 'preferred_output': there is nothing to learn")
        return self


class TextPreference(Body):
    """Two texts that continue the same prompt, without a template, one better than the other."""

    prompt: str
    chosen: SomeText
    rejected: SomeText

    @model_validator(mode="after")
    def _texts_differ(self) -> "TextPreference":
        if self.chosen == self.rejected:
            raise field_error("rejected", "it is the same as 'chosen': there is nothing to learn")
        return self


LabelName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_CHARACTERS)]
LabelNumber = Annotated[int, Field(ge=-MAX_LABEL_NUMBER, le=MAX_LABEL_NUMBER)]
LabelValue = Annotated[float, Field(ge=-MAX_LABEL_NUMBER, le=MAX_LABEL_NUMBER)]
Label = (
    Annotated[LabelName, Tag("a string")]
    | Annotated[LabelNumber, Tag("an integer")]
    | Annotated[LabelValue, Tag("a number")]
    | Annotated[list[LabelName], Field(fail_fast=True, max_length=MAX_LABELS), Tag("a list")]
)


def _label_type(label: object) -> str | None:
    """Return the tag of the type that errors of this label are about."""
    kinds: dict[type, str] = {str: "a string", int: "an integer", float: "a number", list: "a list"}
    return kinds.get(type(label))


class _Labelled(Body):
    """The class of a text, a list of all labels that apply to it, or a score."""

    label: Annotated[
        Label,
        Discriminator(
            _label_type,
            custom_error_type="label_type",
            custom_error_message="it must be a string, an integer, a list of strings or a number",
        ),
    ]

    @model_validator(mode="after")
    def _labels_differ(self) -> "_Labelled":
        if isinstance(self.label, list) and len(set(self.label)) < len(self.label):
            raise field_error("label", "it has the same label twice")
        return self


class LabelledText(_Labelled):
    """A text with its label, tokenized as the input of a classification is."""

    text: SomeText


class LabelledChat(_Labelled):
    """A chat with its label, rendered as the messages of a classification are."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]

    @model_validator(mode="after")
    def _has_results(self) -> "LabelledChat":
        check_tool_results(self.messages)
        return self


Example = Conversation | Completion | Text | Preference | TextPreference | LabelledChat | LabelledText
