"""Sampling of tokens from logits, many rows at once, without waiting for the device in between."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from functools import partial

import torch
from torch import Tensor

from loragate.engine.sequence.request import SamplingParams
from loragate.kernels import gpu
from loragate.kernels.transfers import to_device

if gpu.available():
    from loragate.kernels.gpu import sampling as kernel

_Way = Callable[[Tensor, Seq[SamplingParams], Seq[float]], Tensor]
_MAX_NUMBERS, _MAX_NUMBERS_ON_CPU = 1 << 23, 1 << 16  # numbers: 64 MB on a GPU; on a CPU, what stays in a core's cache
_FEW, _MORE = 128, 32  # candidates examined first, and the factor for each further attempt


def draw(logits: Tensor, params: Seq[SamplingParams], uniforms: Seq[float]) -> Tensor:
    """Sample a token for each row of logits [rows, vocabulary], int64 [rows].

    Temperature comes first, then top_k, top_p and min_p (Nguyen et al., 2024, arXiv:2407.01082), then the inverse of
    the distribution at the row's number in [0, 1). A row's token depends only on the row: rows with equally many
    candidates are computed together. On a GPU, only rows with a top_k are sorted; the distribution of the others is
    inverted in the vocabulary's order, and equal logits are kept by top_p all together.
    """
    tokens = torch.empty(len(params), dtype=torch.long, device=logits.device)
    max_rows = max(1, (_MAX_NUMBERS_ON_CPU if logits.device.type == "cpu" else _MAX_NUMBERS) // logits.shape[1])
    for candidates, rows in _by_candidates(params, logits.shape[1], max_rows):
        few = candidates == 0 and logits.device.type == "cpu"  # a GPU would have to be waited for
        way: _Way = partial(_draw_of_few, few=_FEW) if few else partial(_draw, candidates=candidates)
        if not candidates and gpu.serves(logits.device):
            way = _draw_without_sorting
        drawn = way(select_rows(logits, rows), [params[i] for i in rows], [uniforms[i] for i in rows])
        tokens.index_copy_(0, to_device(rows, tokens.device), drawn)
    return tokens


def select_rows(tensor: Tensor, rows: Seq[int]) -> Tensor:
    """Return these rows, given in ascending order; as a view if they are contiguous."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return tensor[rows[0] : rows[-1] + 1]
    return tensor.index_select(0, to_device(rows, tensor.device))


def _by_candidates(
    params: Seq[SamplingParams], vocabulary: int, max_rows: int
) -> Iterator[tuple[int | None, list[int]]]:
    """Yield rows with about as many candidates, at most `max_rows` at a time.

    The number of candidates is 0 for all of them, sorted, and None for all in the vocabulary's order.
    """
    alike: dict[int | None, list[int]] = {}
    for i, p in enumerate(params):
        filtered = p.top_k or p.top_p < 1 or p.min_p
        alike.setdefault(_candidates(p.top_k, vocabulary) if filtered else None, []).append(i)
    for candidates, rows in alike.items():
        for start in range(0, len(rows), max_rows):
            yield candidates, rows[start : start + max_rows]


def _candidates(top_k: int, vocabulary: int) -> int:
    """Return how many candidates are sorted, a power of two so that few distinct shapes occur; 0 means all."""
    return min(1 << (top_k - 1).bit_length(), vocabulary) if top_k else 0


def _draw_of_few(logits: Tensor, params: Seq[SamplingParams], uniforms: Seq[float], few: int) -> Tensor:
    """Sample for rows without a top_k.

    Usually top_p and min_p leave only a few candidates, and sorting a whole vocabulary takes ten times as long as the
    rest of the sampling.
    """
    if few >= logits.shape[1]:
        return _draw(logits, params, uniforms, 0)
    temperature, top_p, min_p, at, _ = _columns(logits, params, uniforms)
    tokens = logits.topk(few).indices
    probabilities = (logits.double() / temperature).softmax(dim=-1).gather(1, tokens)
    kept = _survivors(probabilities, _cumulative(probabilities), torch.ones_like(top_p), top_p, min_p)
    drawn = _one_of(tokens, probabilities.where(kept, 0.0), at)
    for row in kept[:, -1].nonzero()[:, 0].tolist():  # the last candidate is kept, so there may be more
        drawn[row] = _draw_of_few(logits[row : row + 1], [params[row]], [uniforms[row]], few * _MORE)[0]
    return drawn


def _draw_without_sorting(logits: Tensor, params: Seq[SamplingParams], uniforms: Seq[float]) -> Tensor:
    """Sample for rows without a top_k, in one launch."""
    settings = [(p.temperature, p.top_p, p.min_p, at) for p, at in zip(params, uniforms, strict=True)]
    return kernel.draw(logits.float(), to_device(settings, logits.device, torch.float64))[0]


def _columns(logits: Tensor, params: Seq[SamplingParams], uniforms: Seq[float]) -> tuple[Tensor, ...]:
    """Return temperature, top_p, min_p, the number to sample at, and top_k; each [rows, 1], float64."""
    numbers = [
        (p.temperature, p.top_p, p.min_p, at, p.top_k or logits.shape[1])
        for p, at in zip(params, uniforms, strict=True)
    ]
    columns: tuple[Tensor, ...] = to_device(numbers, logits.device, torch.float64).split(1, dim=1)
    return columns


def _draw(logits: Tensor, params: Seq[SamplingParams], uniforms: Seq[float], candidates: int | None) -> Tensor:
    temperature, top_p, min_p, at, top_k = _columns(logits, params, uniforms)
    if candidates is None:
        return _inverse((logits.double() / temperature).softmax(dim=-1), at)
    largest, tokens = logits.topk(candidates or logits.shape[1])
    probabilities = (largest.double() / temperature).softmax(dim=-1)  # relative to the candidates, which suffices here
    probabilities = probabilities.where(torch.arange(tokens.shape[1], device=logits.device) < top_k, 0.0)
    cumulative = _cumulative(probabilities)
    kept = _survivors(probabilities, cumulative, cumulative[:, -1:], top_p, min_p)
    return _one_of(tokens, probabilities.where(kept, 0.0), at)


def _one_of(tokens: Tensor, probabilities: Tensor, at: Tensor) -> Tensor:
    return tokens.gather(1, _inverse(probabilities, at)[:, None])[:, 0]


def _survivors(descending: Tensor, cumulative: Tensor, whole: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Return which probabilities survive top_p of their whole sum and min_p; in each row at least the largest."""
    kept = (cumulative - descending < top_p * whole) | (top_p >= 1)
    kept &= descending >= min_p * descending[:, :1]
    kept[:, 0] = True
    return kept


def _inverse(probabilities: Tensor, at: Tensor) -> Tensor:
    """Return the index at which each row's sum first exceeds `at` of its whole.

    If rounding prevents this, it is the last index with a positive probability.
    """
    cumulative = _cumulative(probabilities)
    whole = cumulative[:, -1:].contiguous()
    found = torch.searchsorted(cumulative, at * whole, right=True)
    last = torch.searchsorted(cumulative, whole)
    return torch.minimum(found, last).clamp(max=probabilities.shape[1] - 1)[:, 0]


def _cumulative(rows: Tensor) -> Tensor:
    """Return the sums along each row. On a GPU a single row would be summed by another algorithm, with other
    rounding."""
    if rows.is_cuda and rows.shape[0] == 1:
        return rows.expand(2, -1).cumsum(dim=-1)[:1]
    return rows.cumsum(dim=-1)
