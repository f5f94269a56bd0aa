"""Copies to a device start from page-locked memory, for every kind of source."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from loragate.kernels.transfers import to_device

GPU = torch.device("cuda")


@pytest.mark.parametrize("numbers", [[1, 2, 3], np.array([1, 2, 3]), np.arange(6)[::2] // 2 + 1, []])
def test_lists_and_arrays(numbers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch pins no tensor that it creates from an array."""
    on_the_way: list[tuple[torch.device, bool]] = []
    locked: list[Tensor] = []

    def pin(tensor: Tensor) -> Tensor:
        locked.append(tensor.clone())
        return locked[-1]

    def to(tensor: Tensor, device: torch.device, *, non_blocking: bool) -> Tensor:
        assert any(tensor is each for each in locked)
        on_the_way.append((device, non_blocking))
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", to)
    assert to_device(numbers, GPU, torch.int64).tolist() == list(numbers)
    assert on_the_way == [(GPU, True)]


def test_it_is_a_copy() -> None:
    numbers = np.array([1, 2, 3])
    copy = to_device(numbers, torch.device("cpu"))
    numbers[0] = 9
    assert copy.tolist() == [1, 2, 3]
