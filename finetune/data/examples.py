"""What one line of a training file may be, in OpenAI's formats and TRL's."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from loragate.prompts.body import Body
from loragate.prompts.messages import ChatMessage, check_tool_results
from loragate.prompts.tools import MAX_TOOLS, Tool, tool_names
from loragate.prompts.validation import field_error

MAX_MESSAGES = 4096

SomeText = Annotated[str, StringConstraints(min_length=1)]


class TrainingMessage(ChatMessage):
    """`weight` 0 keeps an answer of the assistant's from being learned."""

    weight: Literal[0, 1] | None = None

    @model_validator(mode="after")
    def _weight_is_the_assistants(self) -> "TrainingMessage":
        if self.weight is not None and self.role != "assistant":
            raise field_error("weight", "only messages of role 'assistant' have it")
        return self

    @property
    def learned(self) -> bool:
        """The model is to say this."""
        return self.role == "assistant" and self.weight != 0


def _check_says_something(answer: ChatMessage, path: str) -> None:
    """Raises a finding about an answer that would teach to say nothing."""
    if not answer.content and not answer.tool_calls:
        raise field_error(f"{path}.content", "it is empty, and there would be nothing to learn")


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
    """A chat. Every answer of the assistant's is learned, unless its weight is 0."""

    messages: Messages

    @model_validator(mode="after")
    def _teaches(self) -> "Conversation":
        last = len(self.messages) - 1
        if self.messages[last].role != "assistant":
            raise field_error(f"messages.{last}.role", "the last message must be the assistant's")
        check_tool_results(self.messages[:last])
        if not any(message.learned for message in self.messages):
            raise field_error("messages", "no answer of the assistant's is to be learned: all have the weight 0")
        for position, message in enumerate(self.messages):
            if message.learned:
                _check_says_something(message, f"messages.{position}")
        return self


class Completion(Body):
    """A prompt as it is, without a template; what follows it is learned."""

    prompt: str
    completion: SomeText


class Text(Body):
    """All of it is learned."""

    text: SomeText


class PreferenceInput(_WithTools):
    """What both answers are to."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]

    @model_validator(mode="after")
    def _awaits_an_answer(self) -> "PreferenceInput":
        last = len(self.messages) - 1
        if self.messages[last].role == "assistant":
            raise field_error(
                f"messages.{last}.role", "the last message must not be the assistant's: it is to be answered"
            )
        check_tool_results(self.messages)
        return self


class Preference(Body):
    """Two answers of the assistant's to the same messages, one better than the other."""

    input: PreferenceInput
    preferred_output: Answer
    non_preferred_output: Answer

    @model_validator(mode="after")
    def _answers_differ(self) -> "Preference":
        for name in ("preferred_output", "non_preferred_output"):
            if getattr(self, name)[0].role != "assistant":
                raise field_error(f"{name}.0.role", "it must be 'assistant'")
            _check_says_something(getattr(self, name)[0], f"{name}.0")
        if self.preferred_output == self.non_preferred_output:
            raise field_error("non_preferred_output", "it is the same as the preferred one: there is nothing to learn")
        return self


class TextPreference(Body):
    """Two texts to follow the same prompt, without a template."""

    prompt: str
    chosen: SomeText
    rejected: SomeText

    @model_validator(mode="after")
    def _texts_differ(self) -> "TextPreference":
        if self.chosen == self.rejected:
            raise field_error("rejected", "it is the same as 'chosen': there is nothing to learn")
        return self


Example = Conversation | Completion | Text | Preference | TextPreference
