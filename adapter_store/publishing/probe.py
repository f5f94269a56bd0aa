"""The probe: the last check of a publication, in which the engine computes with the adapter."""

from typing import Protocol

from loragate.adapter_store.errors import AdapterInvalid, NotTried, Unavailable
from loragate.adapter_store.publishing.staging import StagedAdapter


class Probe(Protocol):
    """A function that tries an adapter in an engine. It holds no transaction."""

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """Return once a forward pass with the adapter has given finite logits.

        Raise AdapterInvalid if it did not, Conflict if the engine now serves another base model, NotTried if no
        engine answered, and Unavailable if the answer is not about the adapter.
        """
        ...


async def no_probe(tenant_id: str, staged: StagedAdapter) -> None:
    """Accept every adapter, where there is no engine."""


def engine_rejection(reason: str, *, non_finite: bool, answered: bool) -> AdapterInvalid | Unavailable:
    """Return the error for an adapter that passed the checks but that the engine rejects; a retry may succeed."""
    if non_finite:
        return AdapterInvalid(
            "With this adapter the model produces NaN or infinite values: its weights are finite, but the computation "
            "with them overflows.",
            code="non_finite_output",
            param="adapter_model.safetensors",
        )
    return Unavailable(_message(reason), code="engine_unavailable") if answered else engine_unavailable(reason)


def engine_unavailable(reason: str) -> NotTried:
    """Return the error for an adapter that could not be tried."""
    return NotTried(_message(reason))


def _message(reason: str) -> str:
    return f"The engine could not try the adapter: {reason}. Nothing was published; send it again."
