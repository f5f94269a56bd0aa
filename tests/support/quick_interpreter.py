"""Triton's interpreter without the work that it repeats at each call.

Before each launch, and before each call of a function within a kernel, it looks through all of `triton.language` for
operations to replace with its own, although a call within a kernel finds them all replaced. It also builds a table of
number types at each operation. Both together take more time than the kernels do.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any


def make_interpreter_quick() -> None:
    """Look for operations once, replace them once per launch, and keep the number types. TRITON_INTERPRET must be
    set."""
    from triton.runtime import interpreter

    interpreter._patch_builtin = _replace_operations
    interpreter._get_np_dtype = _kept_by_name(interpreter._get_np_dtype)
    interpreter.InterpretedFunction.__call__ = _call_within_kernel


def _replace_operations(namespace: Any, *rest: Any) -> None:
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    for name in _operations(namespace):
        member = getattr(namespace, name)
        if is_builtin(member):
            interpreter._patch_attr(namespace, name, member, *rest)


def _kept_by_name(number_type: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: dict[str, Any] = {}

    def number_type_of(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = number_type(dtype)
        return known[name]

    return number_type_of


@cache
def _operations(namespace: Any) -> list[str]:
    from triton.language.core import is_builtin

    return [name for name, member in inspect.getmembers(namespace) if is_builtin(member)]


def _call_within_kernel(function: Any, *args: Any, **kwargs: Any) -> Any:
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    if any(is_builtin(language.load) for language in _languages(function.fn)):
        interpreter._patch_lang(function.fn)
    try:
        return function.rewrite()(*args, **kwargs)
    except Exception as error:
        raise interpreter.InterpreterError(repr(error)) from error


@cache
def _languages(fn: Any) -> list[Any]:
    """Return the modules whose operations the function calls."""
    import triton.language as tl

    return [each for each in fn.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)]
