"""Compilation of grammars for the base model's tokens: off the step loop, within bounds, and cached by tenant."""

import logging
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from loragate.engine.grammar.allowed_tokens import MaskFiller
from loragate.engine.grammar.matcher import GrammarMatcher, reason
from loragate.engine.grammar.spec import JSON_OBJECT, Grammar, GrammarKind
from loragate.engine.grammar.tokenizer import TokenSpace, build_tokenizer
from loragate.engine.grammar.vocabulary import UnknownTokenizer
from loragate.engine.runtime.tenant_executor import TenantPool

log = logging.getLogger(__name__)

MAX_TEXT_BYTES = 256 << 10
_MAX_CACHED, _MAX_CACHED_PER_TENANT = 1024, 256
_THREADS = 2
_TRIAL_SECONDS = 20.0  # it runs at a low priority
_NO_LIBRARY = "the engine has no grammar library: install llguidance"

# At most one space where JSON allows any white space: a weak model would otherwise generate blanks until it is stopped.
# No \uXXXX escapes: an undeclared property could be spelled so that it overwrites a declared one. Every option is set
# explicitly, because a schema may set its own under "x-guidance", and these take precedence.
_JSON_OPTIONS: Any = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": " ?",
    "coerce_one_of": False,
    "lenient": False,
    "json_allowed_escapes": '"\\bfnrt',
}
_SINCE_1_9: Any = {"json_allow_general_unicode_escapes": False}
# Older ones know no \uXXXX escapes but those allowed above, and no bound of white space: so they get none.
_BEFORE_1_9: Any = {"whitespace_flexible": False, "whitespace_pattern": None}


@cache
def _json_options() -> Any:
    """Return the options as the installed library takes them: vLLM's environment has an older one."""
    major, minor, *_ = metadata.version("llguidance").split(".")
    return _JSON_OPTIONS | (_SINCE_1_9 if (int(major), int(minor)) >= (1, 9) else _BEFORE_1_9)


class GrammarRejected(Exception):
    """The grammar cannot be used; the message says why."""


Compiled = GrammarMatcher | GrammarRejected
"""A matcher at the start of its grammar, to be forked for each sequence; or the reason why there is none."""


class GrammarCache:
    """Compiled grammars of each tenant. Thread-safe.

    Tenants share none, so that the time that a grammar takes does not reveal whether another tenant uses it. In a
    full cache the tenant with the most grammars loses the one that it has not used for longest.
    """

    def __init__(self, size: int = _MAX_CACHED, size_per_tenant: int = _MAX_CACHED_PER_TENANT) -> None:
        self._size = size
        self._size_per_tenant = size_per_tenant
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, OrderedDict[Grammar, Compiled]] = OrderedDict()  # last used last, both
        self._count = 0

    def get(self, tenant_id: str, grammar: Grammar) -> Compiled | None:
        with self._lock:
            own = self._tenants.get(tenant_id)
            found = None if own is None else own.get(grammar)
            if own is not None and found is not None:
                own.move_to_end(grammar)
                self._tenants.move_to_end(tenant_id)
            return found

    def put(self, tenant_id: str, grammar: Grammar, compiled: Compiled) -> None:
        with self._lock:
            own = self._tenants.setdefault(tenant_id, OrderedDict())
            self._tenants.move_to_end(tenant_id)
            self._count += grammar not in own
            own[grammar] = compiled
            own.move_to_end(grammar)
            if len(own) > self._size_per_tenant:
                self._drop_oldest(tenant_id)
            elif self._count > self._size:
                self._drop_oldest(max(self._tenants, key=lambda each: len(self._tenants[each])))

    def _drop_oldest(self, tenant_id: str) -> None:
        own = self._tenants[tenant_id]
        own.popitem(last=False)
        self._count -= 1
        if not own:
            del self._tenants[tenant_id]


class GrammarCompiler:
    """Compiles grammars on its own threads, of which a tenant has one at a time. The callback `done` of `compile` is
    called from any thread, and so is `wanted`."""

    def __init__(self, tokens: TokenSpace, threads: int) -> None:
        self._tokens = tokens
        self._mask_threads = threads
        self._pool = TenantPool(_THREADS, "grammar", per_tenant=1)
        self._cache = GrammarCache()
        self._building = threading.Lock()

    def compile(
        self,
        tenant_id: str,
        grammar: Grammar,
        done: Callable[[Compiled], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Return a cached result at once, or compile when it is the tenant's turn, unless it is not `wanted` any
        more."""
        known = self._cache.get(tenant_id, grammar)
        if known is not None:
            done(known)
            return

        def work() -> None:
            if wanted():
                done(self._cached_or_compiled(tenant_id, grammar))

        self._pool.submit(tenant_id, work)

    @cached_property
    def masks(self) -> MaskFiller:
        """The mask filler. Grammars are passed to it only after they were compiled."""
        return MaskFiller(self._start_executor, -(-self._tokens.table_size // 32))

    def _start_executor(self) -> Any:
        from llguidance import LLExecutor

        return LLExecutor(self._mask_threads)

    def close(self) -> None:
        """Drop the compilations that have not started."""
        self._pool.close()

    def _cached_or_compiled(self, tenant_id: str, grammar: Grammar) -> Compiled:
        compiled = self._cache.get(tenant_id, grammar)
        if compiled is None:
            compiled = self._compile(grammar)
            self._cache.put(tenant_id, grammar, compiled)
        return compiled

    def _compile(self, grammar: Grammar) -> Compiled:
        try:
            return self._matcher(grammar)
        except GrammarRejected as rejection:
            return rejection
        except ImportError:
            return GrammarRejected(_NO_LIBRARY)
        except Exception as error:
            log.exception("compiling a grammar failed")
            return GrammarRejected(f"the engine failed to compile it ({type(error).__name__})")

    def _matcher(self, grammar: Grammar) -> GrammarMatcher:
        from llguidance import LLMatcher, LLParserLimits

        if len(grammar.text.encode()) > MAX_TEXT_BYTES:
            raise GrammarRejected(f"it is over the limit of {MAX_TEXT_BYTES} bytes")
        text = in_library_format(grammar)
        if grammar != JSON_OBJECT:
            _compile_in_trial(text)
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(self._tokenizer(), text, limits=limits, log_level=0)
        if matcher.is_error():
            raise GrammarRejected(reason(matcher.get_error()))
        return GrammarMatcher(matcher)

    def _tokenizer(self) -> Any:
        with self._building:
            return self._built_tokenizer

    @cached_property
    def _built_tokenizer(self) -> Any:
        try:
            return build_tokenizer(self._tokens)
        except UnknownTokenizer as error:
            raise GrammarRejected(f"grammars cannot be used with this base model: {error}") from error


def in_library_format(grammar: Grammar) -> str:
    """Return the grammar as llguidance takes it, with our options. Raise GrammarRejected."""
    from llguidance import LLMatcher

    try:
        match grammar.kind:
            case GrammarKind.JSON_SCHEMA:
                return str(LLMatcher.grammar_from_json_schema(grammar.text, overrides=_json_options()))
            case GrammarKind.REGEX:
                return str(LLMatcher.grammar_from_regex(grammar.text))
            case GrammarKind.LARK:
                return str(LLMatcher.grammar_from_lark(grammar.text))
    except ValueError as error:
        raise GrammarRejected(str(error)) from error


def _compile_in_trial(text: str) -> None:
    """Compile the grammar in a process that can be killed, before it is compiled here. Raise GrammarRejected."""
    from llguidance import _lib

    script = Path(__file__).with_name("trial.py")
    command = [sys.executable, "-I", "-S", str(script), str(_lib.__file__)]
    try:
        trial = subprocess.run(command, input=text.encode(), capture_output=True, timeout=_TRIAL_SECONDS, check=True)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise GrammarRejected("it takes too much time or memory to compile: simplify it") from None
    if trial.stdout:
        raise GrammarRejected(reason(trial.stdout.decode()))
