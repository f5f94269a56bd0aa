"""Logprobs of prompt tokens on the device, from the logits before them."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from loragate.engine.sampling.sampler import USUAL_LOGPROBS
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.kernels.transfers import to_device


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Logprobs of prompt tokens, on the device. `largest` and `theirs` have no columns if no row wants them."""

    own: Tensor  # [rows]
    ranks: Tensor  # [rows]
    largest: Tensor  # [rows, k]
    theirs: Tensor  # [rows, k], tokens
    finite: Tensor  # [rows], whether all logits of the row are

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.own, self.ranks, self.largest, self.theirs, self.finite)


@torch.inference_mode()
def score(logits: Tensor, tokens: Seq[int], top: int) -> PromptScores:
    """Score the token that follows each row of logits [rows, vocabulary], with the `top` most probable ones.

    Nothing in it waits for the device.
    """
    logits = logits.float()
    places = to_device(tokens, logits.device)[:, None]
    ranks = (logits > logits.gather(1, places)).sum(dim=-1) + 1
    logprobs = logits.log_softmax(dim=-1)
    # As many as in the sampler, so that the order of ties does not depend on what other requests ask for.
    k = min(max(USUAL_LOGPROBS, top), logits.shape[1]) if top else 0
    largest, theirs = logprobs.topk(k)
    return PromptScores(logprobs.gather(1, places)[:, 0], ranks, largest, theirs, torch.isfinite(logits).all(dim=-1))


def read(tensors: Seq[Tensor], top: int) -> PromptLogprobs | None:
    """Return the logprobs with `top` alternatives, given copies of rows of the tensors in host memory; None if a logit
    is not finite."""
    own, ranks, largest, theirs, finite = tensors
    if not bool(finite.all()):
        return None
    top = min(top, largest.shape[1])
    return PromptLogprobs(
        own.tolist(), ranks.tolist(), top, theirs[:, :top].flatten().tolist(), largest[:, :top].flatten().tolist()
    )
