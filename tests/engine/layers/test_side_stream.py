"""Shrink beside the base product, on a device that executes its streams late and in any order that events allow."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from deferred_device import DeferredDevice, DeferredStream
from thinned import thinned
from torch import Tensor, nn

from loragate.engine.layers.forward_context import ForwardContext
from loragate.engine.layers.lora_linear import LoraGroup, Member
from loragate.kernels import gpu
from loragate.kernels.base_output import Affine
from loragate.kernels.gpu import segmented_lora
from loragate.kernels.gpu.side_stream import SideStream
from loragate.kernels.lora_weights import Expand, LoraWeights
from loragate.kernels.segmented_lora import LoraOptions, LoraTable
from loragate.kernels.segments import FixedSegments, Segments, divide, segments_from

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")

IN, OUT, SLOTS = 24, 40, [0, 0, 1, -1, 1]
DEVICE = torch.device("cpu")


class LateStreams:
    """The current stream, and a second one; `without` names an order that is left out."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int, without: str = "") -> None:
        self.device, self._without = DeferredDevice(random.Random(seed)), without
        self.main = Stream(self.device.computes, self, "join")
        self.current = self.main
        patch.setattr(torch.cuda, "Stream", lambda device: Stream(self.device.copies, self, "fork"))
        patch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        patch.setattr(torch.cuda, "stream", self._under)
        for name in ("shrink_kernel", "expand_kernel"):
            patch.setattr(segmented_lora, name, Late(getattr(segmented_lora, name), self))
        patch.setattr(torch, "empty", self._allocating(torch.empty))

    def launch(self, work: Callable[[], object]) -> None:
        self.current.stream.launch(lambda: (work(), None)[1])

    def leaves_out(self, order: str) -> bool:
        return order == self._without

    def _allocating(self, empty: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function that fails for memory of the second stream, which torch could give away too early."""

        def allocate(*args: Any, **options: Any) -> Tensor:
            assert self.current is self.main
            return empty(*args, **options)

        return allocate

    @contextmanager
    def _under(self, stream: "Stream") -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class Stream:
    def __init__(self, stream: DeferredStream, streams: LateStreams, order: str) -> None:
        self.stream, self._streams, self._order = stream, streams, order

    def wait_stream(self, other: "Stream") -> None:
        if not self._streams.leaves_out(self._order):
            self.stream.wait(other.stream.record())


class Late:
    """A kernel that is launched on the current stream."""

    def __init__(self, kernel: Any, streams: LateStreams) -> None:
        self._kernel, self._streams = kernel, streams

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **options: self._streams.launch(lambda: self._kernel[grid](*args, **options))


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) / 8


def make_group(linear: Callable[[Tensor], Tensor], options: LoraOptions, segments: Segments) -> LoraGroup:
    context = ForwardContext()
    context._batch = SimpleNamespace(segments_for=lambda rows: segments)  # type: ignore[assignment]
    group = LoraGroup((Member("m", 0, OUT, nn.Identity()),), IN, linear, context, LoraTable(IN, (OUT,), options))
    group.adapters.put(0, LoraWeights(numbers(8, IN), (Expand(0, 8, 0, numbers(8, OUT)),), (Affine(0, numbers(OUT)),)))
    group.adapters.put(1, LoraWeights(numbers(20, IN), (Expand(0, 20, 0, numbers(20, OUT)),)))
    return group


def segments_of(kind: str) -> Segments:
    segments = segments_from(SLOTS)
    return FixedSegments(torch.tensor(SLOTS), divide(segments, DEVICE, torch.float32)) if kind == "fixed" else segments


def late_result(streams: LateStreams, weight: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """Return what is computed if x comes late too, and its memory is used again afterwards."""

    def linear(rows: Tensor) -> Tensor:
        y = torch.full((len(rows), OUT), float("nan"))
        streams.launch(lambda: y.copy_(F.linear(rows, weight)))
        return y

    group = make_group(linear, LoraOptions(beside=SideStream(DEVICE)), segments)
    late = torch.full_like(x, float("nan"))
    streams.launch(lambda: late.copy_(x))
    y = group.output(late[None], group.members[0])
    streams.launch(lambda: late.fill_(float("nan")))
    while streams.device.advance():
        pass
    return y


@pytest.mark.parametrize("kind", thinned(["launched", "fixed"], fast={"fixed"}))
@pytest.mark.parametrize("without", ["", "fork", "join"])
def test_the_result_is_that_of_one_stream(without: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both orders are needed: without either of them some order of execution computes something else."""
    monkeypatch.setattr(gpu, "serves", lambda device: True)
    weight, x, segments = numbers(OUT, IN), numbers(len(SLOTS), IN), segments_of(kind)
    plain = make_group(lambda rows: F.linear(rows, weight), LoraOptions(), segments)
    expected = plain.output(x[None], plain.members[0])
    right = []
    for seed in range(12):
        with monkeypatch.context() as patch:
            right.append(torch.equal(late_result(LateStreams(patch, seed, without), weight, x, segments), expected))
    assert expected.isfinite().all()
    assert all(right) == (not without)
