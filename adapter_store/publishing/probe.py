"""The last check of a publication: whether the engine can compute with the adapter."""

from typing import Protocol

from loragate.adapter_store.errors import AdapterInvalid, NotTried, Unavailable
from loragate.adapter_store.publishing.staging import StagedAdapter


class Probe(Protocol):
    """Whoever reaches an engine supplies one. It holds no transaction."""

    async def __call__(self, tenant_id: str, staged: StagedAdapter) -> None:
        """Returns once a forward pass with the adapter gave finite logits.

        Raises AdapterInvalid when it did not, Conflict when the engine serves another base model by now, NotTried when
        there is no answer to be had, and Unavailable when there is one that says nothing about the adapter.
        """
        ...


async def no_probe(tenant_id: str, staged: StagedAdapter) -> None:
    """For where there is no engine."""


def engine_refusal(reason: str, *, non_finite: bool, answered: bool) -> AdapterInvalid | Unavailable:
    """What the engine refuses though it passed the checks may be the engine's own trouble: worth another try."""
    if non_finite:
        return AdapterInvalid(
            "With this adapter the model produces NaN or infinite values: its weights are finite, but what is computed "
            "with them overflows.",
            code="non_finite_output",
            param="adapter_model.safetensors",
        )
    return Unavailable(_words(reason), code="engine_unavailable") if answered else engine_unavailable(reason)


def engine_unavailable(reason: str) -> NotTried:
    """No word on the adapter."""
    return NotTried(_words(reason))


def _words(reason: str) -> str:
    return f"The engine could not try the adapter: {reason}. Nothing was published; send it again."
