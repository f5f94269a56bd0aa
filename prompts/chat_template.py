"""Chat templates as transformers renders them, in a sandbox with limits on time and size.

The template comes with the base model, the messages from a tenant. Rendering ends within `_MAX_SECONDS`, and the result
has at most `_MAX_CHARACTERS`.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
from jinja2.sandbox import ImmutableSandboxedEnvironment

from loragate.prompts.special_text import MARK, SpecialText
from loragate.prompts.template_traits import read_traits

_MAX_SECONDS = 2.0
_MAX_CHARACTERS = 32 << 20
_MAX_REPEAT = 10_000
_CLOCK_STRIDE = 64  # operations between two checks of the clock

_END = f"{MARK}end{MARK}"  # of the message that is continued; the tokenizer never sees it

Ending = Literal["prompt", "finished", "unfinished"]
"""Where a rendered chat ends: at the start of the assistant's next message, behind the last message, or at the end of
the last message's text, which the model continues."""

Message = Mapping[str, Any]
Tool = Mapping[str, Any]


class TemplateError(ValueError):
    """The template cannot render these messages. The text is the template's own reason, or ours."""


class ChatTemplate:
    """A compiled template. Rendering is thread-safe.

    `special_text` marks the special tokens that messages and tools spell, so that the tokenizer reads them as text; a
    default one marks nothing.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], special_text: SpecialText | None = None) -> None:
        self._special_tokens = dict(special_tokens)
        self.special_text = special_text or SpecialText()
        self.source = source
        self.traits = read_traits(source)
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self.variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
            self.takes_tools = "tools" in self.variables
        except jinja2.TemplateError as error:
            raise TemplateError(f"the base model's chat template does not compile: {error}") from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        prompt: bool = True,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Render the messages as text; with `prompt`, up to the start of the assistant's next message. `variables` are
        further ones of the template.

        An empty list of tools is passed to the template as None. Raise TemplateError.
        """
        return self._render(self._given(messages, tools, variables, prompt=prompt))

    def render_unfinished(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Render the messages as text up to the end of the last one's content, which is a string, so that the model
        continues it. Raise TemplateError."""
        given = self._given(messages, tools, variables, prompt=False)
        given["messages"][-1]["content"] += _END
        head, found, _ = self._render(given).rpartition(_END)
        if not found:
            raise TemplateError("it does not render the content of the last message")
        return head

    def _render(self, variables: Mapping[str, Any]) -> str:
        token = _budget.set(_Budget())
        try:
            return _joined(self._template.generate(**variables))
        except (jinja2.TemplateError, _OverBudget) as error:
            raise TemplateError(str(error)) from None
        except Exception as error:  # a template is a program and can raise anything
            raise TemplateError(f"it failed on these messages ({type(error).__name__})") from None
        finally:
            _budget.reset(token)

    def _given(
        self, messages: Sequence[Message], tools: Sequence[Tool], variables: Mapping[str, Any], *, prompt: bool
    ) -> dict[str, Any]:
        return {
            **self.special_text.marked(dict(variables)),
            **self._special_tokens,
            "messages": [self.special_text.marked_message(message) for message in messages],
            "tools": [self.special_text.marked(dict(tool)) for tool in tools] or None,
            "documents": None,
            "add_generation_prompt": prompt,
        }


class _OverBudget(Exception):
    pass


class _Budget:
    """The time and size that remain to one rendering."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + _MAX_SECONDS
        self._until_check = _CLOCK_STRIDE

    def spend(self) -> None:
        self._until_check -= 1
        if self._until_check == 0:
            self._until_check = _CLOCK_STRIDE
            if time.monotonic() > self._deadline:
                raise _OverBudget(f"it did not finish within {_MAX_SECONDS:g} seconds")


_budget: ContextVar[_Budget] = ContextVar("chat template budget")


def _joined(pieces: Iterable[str]) -> str:
    kept: list[str] = []
    size = 0
    for piece in pieces:
        _budget.get().spend()
        size += len(piece)
        if size > _MAX_CHARACTERS:
            raise _OverBudget(f"its output is longer than {_MAX_CHARACTERS} characters")
        kept.append(piece)
    return "".join(kept)


class _Environment(ImmutableSandboxedEnvironment):
    """Checks the budget in every operation that a loop's body could consist of."""

    intercepted_binops = frozenset({"*", "**"})

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _budget.get().spend()
        return super().call(__context, __obj, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        _budget.get().spend()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        _budget.get().spend()
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        # By repeating a sequence or raising to a power, a short template could fill the memory.
        if operator == "**" or _repeated_length(left, right) > _MAX_REPEAT:
            raise _OverBudget(f"it uses `{operator}` on too large a value")
        return super().call_binop(context, operator, left, right)


def _repeated_length(left: Any, right: Any) -> int:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(times, int):
            return len(sequence) * times
    return 0


class _Generation(jinja2.ext.Extension):
    """Renders `{% generation %}`, which marks the assistant's tokens for training, as its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which prompts are not.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
