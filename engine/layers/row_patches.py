"""The kinds of changes that an adapter can make to an embedding or a norm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loragate.engine.layers.rowwise_module import RowFunction, twin


@dataclass(frozen=True, slots=True)
class OwnParameters:
    """The adapter's own parameters by their names in the module; the base model's are used for the others."""

    parameters: Mapping[str, Tensor]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.parameters.values())

    def on(self, tensors: Sequence[Tensor]) -> "OwnParameters":
        return OwnParameters(dict(zip(self.parameters, tensors, strict=True)))

    def bind(self, module: nn.Module) -> RowFunction:
        forward = twin(module, **self.parameters)
        return lambda x, _: forward(x)


@dataclass(frozen=True, slots=True)
class OwnVectors:
    """The adapter's own vectors for some tokens of an embedding."""

    token_ids: Tensor  # [tokens], int64, ascending
    vectors: Tensor  # [tokens, dim]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.token_ids, self.vectors)

    def on(self, tensors: Sequence[Tensor]) -> "OwnVectors":
        return OwnVectors(*tensors)

    def bind(self, module: nn.Module) -> RowFunction:
        look_up = twin(module, weight=self.vectors)
        last = self.token_ids.shape[0] - 1

        def own_where_there_is_one(ids: Tensor, y: Tensor) -> Tensor:
            at = torch.searchsorted(self.token_ids, ids.contiguous()).clamp(max=last)
            return torch.where((self.token_ids[at] == ids)[..., None], look_up(at), y)

        return own_where_there_is_one


@dataclass(frozen=True, slots=True)
class EmbeddingLora:
    """LoRA on an embedding: the vector of token t becomes scale · y + A[t] · B, with A scaled as the module scales."""

    a: Tensor  # [vocabulary, rank]
    b: Tensor  # [rank, dim], already multiplied by the scaling and DoRA's scale
    scale: Tensor | None = None  # [dim], of DoRA; None means 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.a, self.b) if self.scale is None else (self.a, self.b, self.scale)

    def on(self, tensors: Sequence[Tensor]) -> "EmbeddingLora":
        return EmbeddingLora(*tensors)

    def bind(self, module: nn.Module) -> RowFunction:
        look_up = twin(module, weight=self.a)
        if self.scale is None:
            return lambda ids, y: y + look_up(ids) @ self.b
        scale = self.scale
        return lambda ids, y: y * scale + look_up(ids) @ self.b
