"""The manifest of a fleet: what all of its engines can do."""

from collections.abc import Sequence

from loragate.v1 import engine_pb2 as pb

_LEAST = ("max_model_len", "max_lora_rank", "adapter_slots", "kv_capacity_tokens")


def combined(manifests: Sequence[pb.Manifest]) -> pb.Manifest:
    """Return the first manifest with the least of each bound and the kinds of adapters that all engines serve."""
    if len(manifests) == 1:
        return manifests[0]
    fleet = pb.Manifest()
    fleet.CopyFrom(manifests[0])
    for name in _LEAST:
        setattr(fleet, name, min(getattr(each, name) for each in manifests))
    kinds = set(fleet.adapter_kinds).intersection(*(each.adapter_kinds for each in manifests))
    fleet.adapter_kinds[:] = [kind for kind in fleet.adapter_kinds if kind in kinds]
    return fleet
