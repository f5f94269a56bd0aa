"""Activated LoRA (Greenewald et al., 2025, arXiv:2504.12397): from which token of a prompt on an adapter is active."""

import sys
from collections.abc import Sequence

NEVER = sys.maxsize


def active_from(invocation: Sequence[int], prompt: Sequence[int]) -> int:
    """The position at which the invocation tokens last begin in the prompt; NEVER where they do not occur in it,
    whatever is generated after it."""
    first, length = invocation[0], len(invocation)
    for start in range(len(prompt) - length, -1, -1):
        if prompt[start] == first and tuple(prompt[start : start + length]) == tuple(invocation):
            return start
    return NEVER
