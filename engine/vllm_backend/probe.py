"""Readings of what a model computes for a row, and their comparison."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.vllm_backend.llm import Call, Llm, Lora

TOKENS = 16
TOLERANCE = {"float32": 0.02, "float16": 0.15, "bfloat16": 0.3}
"""Of a logprob, by dtype. A wrong adapter changes it by more; in half precision, sums depend on the batch."""


@dataclass(frozen=True, slots=True)
class Row:
    """A completion to read. Rows of one `salt` share cached prefixes; an empty one shares none."""

    label: str
    prompt: tuple[int, ...]
    lora: Lora | None = None
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The greedy tokens of a row, with their logprobs, and how far the second most probable one is behind."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    leads: tuple[float, ...]


def reading_from(tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> Reading:
    """Return the reading of tokens that came with their two most probable alternatives."""
    leads = tuple(each.top[0][1] - each.top[1][1] for each in logprobs)
    return Reading(tuple(tokens), tuple(each.logprob for each in logprobs), leads)


async def read(llm: Llm, row: Row, tokens: int = TOKENS) -> Reading:
    """Read one row. Raise CallRejected, LlmDied."""
    sampling = {"max_tokens": tokens, "temperature": 0.0, "ignore_eos": True, "logprobs": 2}
    call = Call(f"probe-{secrets.token_hex(8)}", row.prompt, row.salt or secrets.token_hex(16), row.lora, sampling)
    found: list[int] = []
    logprobs: list[TokenLogprob] = []
    async for step in llm.generate(call):
        found += step.tokens
        logprobs += step.logprobs
    return reading_from(found, logprobs)


async def read_together(llm: Llm, rows: Sequence[Row]) -> list[Reading]:
    """Read rows in one batch."""
    return await asyncio.gather(*(read(llm, row) for row in rows))


async def read_alone(llm: Llm, rows: Sequence[Row]) -> list[Reading]:
    """Read rows one after the other."""
    return [await read(llm, row) for row in rows]


def difference(expected: Reading, found: Reading, tolerance: float) -> str:
    """Return a description of where and how a reading is wrong; empty if it is not.

    Where two tokens are nearly tied, either may come; what follows is then not compared.
    """
    if len(expected.tokens) != len(found.tokens):
        return f"{len(found.tokens)} tokens in place of {len(expected.tokens)}"
    for place, (token, other) in enumerate(zip(expected.tokens, found.tokens, strict=True)):
        if token != other and expected.leads[place] <= tolerance:
            return ""
        if token != other:
            return f"token {place} is {other} in place of {token}, which leads by {expected.leads[place]:.2f}"
        error = abs(expected.logprobs[place] - found.logprobs[place])
        if not error <= tolerance:
            return f"the logprob of token {place} is off by {error:.2f}"
    return ""


def wrong_rows(
    title: str, rows: Sequence[Row], expected: Sequence[Reading], found: Sequence[Reading], tolerance: float
) -> list[str]:
    """Return a sentence for each row that is wrong."""
    wrong = []
    for row, right, reading in zip(rows, expected, found, strict=True):
        how = difference(right, reading, tolerance)
        if how:
            wrong.append(f"{title}: {row.label}: {how}")
    return wrong
