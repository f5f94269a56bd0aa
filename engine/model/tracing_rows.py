"""The embeddings and norms that compute each row independently, so that rows can use other parameters."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from loragate.engine.layers.rms_norm import is_norm
from loragate.engine.layers.rowwise_module import twin


@dataclass(slots=True)
class RowwiseModules:
    """Finds such modules while a probe of `rows` tokens goes through the model."""

    rows: int
    # for each call, the dimension of the rows, or None
    calls: dict[str, list[int | None]] = field(default_factory=dict)
    _normed: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)  # a norm, its result, and its numbers

    @property
    def found(self) -> dict[str, int]:
        """By name, the dimension of the input that counts rows; only of modules called once per step."""
        return {name: dims[0] for name, dims in self.calls.items() if len(dims) == 1 and dims[0] is not None}

    def norm_of(self, x: Tensor) -> str | None:
        """Return the name of the norm whose result is x, unchanged since, or None."""
        found = (name for name, y, numbers in self._normed if y is x and torch.equal(y, numbers))
        return next(found, None)

    @contextmanager
    def recording(self, model: PreTrainedModel) -> Iterator[None]:
        candidates = {name: m for name, m in model.named_modules() if isinstance(m, nn.Embedding) or is_norm(m)}
        hooks = [m.register_forward_hook(self._record(name), with_kwargs=True) for name, m in candidates.items()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _record(self, name: str) -> Any:
        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> None:
            dim = None if kwargs or len(args) != 1 else rows_dim(module, args[0], y, self.rows)
            self.calls.setdefault(name, []).append(dim)
            if isinstance(y, Tensor) and not isinstance(module, nn.Embedding):
                self._normed.append((name, y, y.clone()))

        return record


def rows_dim(module: nn.Module, x: Any, y: Any, rows: int) -> int | None:
    """Return the dimension of x and y that counts rows, or None if there is none or rows are not independent."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return None
    leading = x.shape if isinstance(module, nn.Embedding) else x.shape[:-1]
    dims = [dim for dim, size in enumerate(leading) if size == rows]
    if len(dims) != 1 or y.shape[: len(leading)] != leading:
        return None
    one = x.narrow(dims[0], rows - 1, 1)
    if isinstance(module, nn.Embedding):
        if x.is_floating_point() or int(x.max()) >= module.num_embeddings:
            return None
        again = twin(module, weight=module.weight[one.flatten()])(torch.zeros_like(one))
    else:
        again = twin(module)(one)
    return dims[0] if torch.allclose(again, y.narrow(dims[0], rows - 1, 1), rtol=1e-3, equal_nan=True) else None
