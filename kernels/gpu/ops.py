"""Registration of kernels as torch operators, with the information that torch.compile needs: which arguments change,
and the shape of the result.

A call through `torch.ops.loragate.…` costs some microseconds of dispatch. Eager code therefore calls the launching
functions directly, and code that is being compiled gets the operators (`choose`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, register_fake

_LIBRARY = Library("loragate", "DEF")
_DEVICES = ("CUDA", "CPU")  # the CPU serves Triton's interpreter


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes an operator of a function that launches kernels.

    `fake` returns a result of the right shape without computing it.
    """

    def register(launch: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        for device in _DEVICES:
            _LIBRARY.impl(name, launch, device)
        register_fake(f"loragate::{name}", fake, lib=_LIBRARY)
        compiled = getattr(torch.ops.loragate, name)

        def choose(*arguments: Any) -> Any:
            return compiled(*arguments) if torch.compiler.is_compiling() else launch(*arguments)

        return choose

    return register


def no_output(*_: Any) -> None:
    """Return None: the fake result of an operator that only changes its arguments."""
