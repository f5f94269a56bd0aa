"""The last check of a publication: whether the engine can compute with the adapter."""

from typing import Protocol

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
