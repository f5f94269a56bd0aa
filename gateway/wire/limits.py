"""Limits as they are shown: all of them, null where there is none."""

from dataclasses import asdict

from loragate.adapter_store.limits import Limits


def limits_object(limits: Limits) -> dict[str, int | None]:
    """A tenant's, a key's or an adapter's."""
    return asdict(limits)
