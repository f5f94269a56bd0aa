"""The last check of a publication: whether the engine can compute with the adapter."""

from typing import Protocol

from loragate.adapter_store.errors import AdapterInvalid, Unavailable
from loragate.adapter_store.staging import StagedAdapter


class Probe(Protocol):
    """Whoever reaches an engine supplies one. It holds no transaction."""

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """Returns once a forward pass with the adapter gave finite logits.

        Raises AdapterInvalid when it did not or when the engine refuses the adapter, Unavailable when there is no
        answer to be had.
        """
        ...


async def no_probe(tenant_id: str, staged: StagedAdapter) -> None:
    """For where there is no engine."""


def engine_refusal(reason: str, *, non_finite: bool) -> AdapterInvalid | Unavailable:
    """What the engine refuses though it passed the checks may be the engine's own trouble: worth another try."""
    if non_finite:
        return AdapterInvalid(
            "With this adapter the model produces NaN or infinite values: its weights are finite, but what is computed "
            "with them overflows.",
            code="non_finite_output",
            param="adapter_model.safetensors",
        )
    return engine_away(reason)


def engine_away(reason: str) -> Unavailable:
    """No word on the adapter."""
    return Unavailable(
        f"The engine could not try the adapter: {reason}. Nothing was published; send it again.",
        code="engine_unavailable",
    )
