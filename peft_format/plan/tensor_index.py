"""The tensors of a file during planning: each is taken once, with the shape that it must have."""

from collections.abc import Callable, Iterator

from loragate.peft_format.errors import in_tensor, quoted
from loragate.peft_format.safetensors.header import Header, TensorSpec


class Tensors:
    """The tensors that no plan has taken yet. `renamed` maps a name in the file to the name that planning uses."""

    def __init__(self, header: Header, renamed: Callable[[str], str]) -> None:
        self._left: dict[str, TensorSpec] = {}
        for spec in header.tensors.values():
            name = renamed(spec.name)
            if name in self._left:
                raise in_tensor(
                    spec.name,
                    f"The tensor {quoted(spec.name)} is in the file twice, also as {quoted(self._left[name].name)}; "
                    "write the file with one version of PEFT.",
                )
            self._left[name] = spec

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, shape: tuple[int, ...], reason: str) -> TensorSpec:
        """Take a tensor; raises AdapterRejected when it is missing, though `reason`, or has another shape."""
        spec = self._left.pop(name, None)
        if spec is None:
            raise in_tensor(name, f"The tensor {quoted(name)} is missing, though {reason}.")
        if spec.shape != shape:
            raise in_tensor(
                name,
                f"The tensor {quoted(spec.name)} has the shape {list(spec.shape)}; "
                f"as {reason}, it must be {list(shape)}.",
            )
        return spec

    def shape(self, name: str) -> tuple[int, ...] | None:
        spec = self._left.get(name)
        return None if spec is None else spec.shape

    def drop(self, name: str) -> None:
        """Discard a tensor that is known but not needed."""
        self._left.pop(name, None)

    def left(self) -> Iterator[str]:
        """Return the names that have not been taken yet."""
        return iter(tuple(self._left))
