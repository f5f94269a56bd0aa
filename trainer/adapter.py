"""An adapter in training: its weights, gradients and moments, each in one flat buffer."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from loragate.trainer.errors import TrainingRejected
from loragate.trainer.targets import Targets

_ALIGNMENT = 16  # numbers: 64 bytes
_BUFFER_ALIGNMENT = 1024  # numbers: the rows of `gradient_norm`
_COPIES = 4  # weights, gradient, two moments
_BYTES = 4


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """What an adapter is created with.

    Attributes:
        seed: A is drawn from it and the module's name; without one, a random seed is drawn.
        alpha: the scaling is alpha / rank.
        train_mlp, train_attn, train_unembed: which modules it targets, by their role in the model.
    """

    rank: int
    seed: int | None = None
    alpha: float = 32.0
    train_mlp: bool = True
    train_attn: bool = True
    train_unembed: bool = True


@dataclass(frozen=True, slots=True)
class LoraShape:
    """LoRA on one module."""

    rank: int
    scaling: float


@dataclass(frozen=True, slots=True)
class MemberFactors:
    """One module's part of a group's factors: its rows of A, and B [out, rank], also as a transposed view."""

    member: int
    ranks: slice
    scaling: float
    b: Tensor
    b_t: Tensor


@dataclass(frozen=True, slots=True)
class GroupFactors:
    """The factors of sibling modules with one input: their As stacked, [sum of ranks, in], and the Bs of each."""

    a: Tensor
    a_t: Tensor
    members: tuple[MemberFactors, ...]


Factors = Mapping[int, GroupFactors]  # by the group's number
Shapes = Mapping[str, LoraShape]  # by the module's name


def check_settings(settings: LoraSettings, targets: Targets, max_rank: int) -> None:
    """Raise TrainingRejected naming the setting that cannot be used."""
    if isinstance(settings.rank, bool) or not isinstance(settings.rank, int) or not 1 <= settings.rank <= max_rank:
        raise TrainingRejected(f"lora_config.rank: must be a whole number from 1 to {max_rank}, got {settings.rank!r}")
    if not np.isfinite(settings.alpha) or settings.alpha <= 0:
        raise TrainingRejected(f"lora_config.alpha: must be a positive number, got {settings.alpha!r}")
    if settings.seed is not None and (isinstance(settings.seed, bool) or not isinstance(settings.seed, int)):
        raise TrainingRejected(f"lora_config.seed: must be a whole number, got {settings.seed!r}")
    if not target_names(settings, targets):
        raise TrainingRejected(
            "lora_config: trains nothing; set train_mlp, train_attn or train_unembed where the model has such modules"
        )


def target_names(settings: LoraSettings, targets: Targets) -> tuple[str, ...]:
    """Return the names of the modules that these settings target, in the model's order."""
    roles = (("attn", settings.train_attn), ("mlp", settings.train_mlp), ("unembed", settings.train_unembed))
    wanted = {name for role, trained in roles if trained for name in targets.by_role[role]}
    return tuple(name for name in targets.shapes if name in wanted)


def shapes_of(settings: LoraSettings, targets: Targets) -> Shapes:
    """Return the rank and scaling of each targeted module."""
    shape = LoraShape(settings.rank, settings.alpha / settings.rank)
    return dict.fromkeys(target_names(settings, targets), shape)


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    shape: tuple[int, int]

    def view(self, flat: Tensor) -> Tensor:
        rows, columns = self.shape
        return flat[self.start : self.start + rows * columns].view(rows, columns)


class BufferLayout:
    """Where each factor is in a flat buffer. Gaps between factors stay zero."""

    def __init__(self, shapes: Shapes, targets: Targets) -> None:
        self._groups: list[tuple[int, _Place, list[tuple[int, slice, float, _Place]]]] = []
        self._factors: dict[str, tuple[_Place, slice, _Place]] = {}
        self._end = 0
        for number, names in enumerate(targets.groups):
            members = [(index, name) for index, name in enumerate(names) if name in shapes]
            if members:
                self._place_group(number, members, shapes, targets)
        self.size = -(-self._end // _BUFFER_ALIGNMENT) * _BUFFER_ALIGNMENT

    def _place_group(self, number: int, members: Sequence[tuple[int, str]], shapes: Shapes, targets: Targets) -> None:
        ends = np.cumsum([shapes[name].rank for _, name in members]).tolist()
        in_features = targets.shapes[members[0][1]][1]
        a = self._reserve(ends[-1], in_features)
        placed = []
        for (index, name), end in zip(members, ends, strict=True):
            shape = shapes[name]
            ranks = slice(end - shape.rank, end)
            b = self._reserve(targets.shapes[name][0], shape.rank)
            placed.append((index, ranks, shape.scaling, b))
            self._factors[name] = (a, ranks, b)
        self._groups.append((number, a, placed))

    def _reserve(self, rows: int, columns: int) -> _Place:
        place = _Place(self._end, (rows, columns))
        self._end += -(-rows * columns // _ALIGNMENT) * _ALIGNMENT
        return place

    def group_factors(self, flat: Tensor) -> Factors:
        """Return views of a buffer, for computations."""
        found = {}
        for number, a_place, placed in self._groups:
            members = []
            for member, ranks, scaling, b_place in placed:
                b = b_place.view(flat)
                members.append(MemberFactors(member, ranks, scaling, b, b.t()))
            a = a_place.view(flat)
            found[number] = GroupFactors(a, a.t(), tuple(members))
        return found

    def factors(self, flat: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield each module's name, A [rank, in] and B [out, rank]."""
        for name, (a, ranks, b) in self._factors.items():
            yield name, a.view(flat)[ranks], b.view(flat)


@dataclass(slots=True)
class Buffer:
    """A flat tensor and the views of it that computations use."""

    flat: Tensor
    factors: Factors


@dataclass(eq=False, slots=True)
class Adapter:
    """One run's adapter.

    Attributes:
        steps: optimizer steps since the moments were zero.
        gradient: the sum since the last optimizer step; None if there is none.
        moments: the means of the gradient and of its square; None before the first step.
    """

    settings: LoraSettings
    shapes: Shapes
    layout: BufferLayout
    buffer: Buffer
    steps: int = 0
    gradient: Buffer | None = None
    moments: tuple[Tensor, Tensor] | None = None
    _unused: Buffer | None = None  # of an earlier gradient

    @property
    def weights(self) -> Factors:
        return self.buffer.factors

    def zeros(self) -> Tensor:
        return torch.zeros(self.layout.size, dtype=torch.float32, device=self.buffer.flat.device)

    def working_gradient(self) -> Buffer:
        """Return a copy of the gradient, for a request to add to; it becomes the gradient if the request succeeds."""
        if self.gradient is not None:
            flat = self.gradient.flat.clone()
        elif self._unused is not None:
            buffer, self._unused = self._unused, None
            buffer.flat.zero_()
            return buffer
        else:
            flat = self.zeros()
        return Buffer(flat, self.layout.group_factors(flat))

    def clear_gradient(self) -> None:
        """Discard the gradient, and keep its buffer for the next one."""
        self._unused = self.gradient or self._unused
        self.gradient = None


def memory_bytes(layout: BufferLayout) -> int:
    """Return the memory that an adapter takes with its gradient and moments."""
    return layout.size * _COPIES * _BYTES


def empty_adapter(settings: LoraSettings, shapes: Shapes, targets: Targets, device: torch.device) -> Adapter:
    """Return an adapter whose factors are all zero."""
    layout = BufferLayout(shapes, targets)
    flat = torch.zeros(layout.size, dtype=torch.float32, device=device)
    return Adapter(settings, shapes, layout, Buffer(flat, layout.group_factors(flat)))


def new_adapter(settings: LoraSettings, targets: Targets, device: torch.device) -> Adapter:
    """Return an adapter that changes nothing yet: B is zero, and A is drawn as PEFT does, uniformly up to 1/√in.

    A depends on the seed and the module's name alone, so that targets do not change each other's.
    """
    assert settings.seed is not None
    adapter = empty_adapter(settings, shapes_of(settings, targets), targets, device)
    for name, a, _ in adapter.layout.factors(adapter.buffer.flat):
        a.copy_(torch.from_numpy(_draw(settings.seed, name, a.shape[0], a.shape[1])))
    return adapter


def _draw(seed: int, name: str, rank: int, width: int) -> np.ndarray:
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16]
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    bound = width**-0.5
    return generator.uniform(-bound, bound, (rank, width)).astype(np.float32)
