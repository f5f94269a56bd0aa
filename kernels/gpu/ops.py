"""The kernels as operators of torch, with what torch.compile has to know of them: which arguments change, and the shape
of what comes out.

Called as `torch.ops.loragate.…` they cost some microseconds of dispatch, so eager code calls the launching functions
themselves; code that is being compiled gets the operators (`choose`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, register_fake

_LIBRARY = Library("loragate", "DEF")
_DEVICES = ("CUDA", "CPU")  # the latter for Triton's interpreter


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes an operator of a function that launches kernels. `fake` gives what it would, of the right shape, without
    computing."""

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


def nothing(*_: Any) -> None:
    """What an operator gives that only changes its arguments."""
