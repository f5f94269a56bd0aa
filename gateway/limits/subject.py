"""The subjects of limits: a tenant, one of its keys, one of its adapters."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.limits import Limits

Kind = Literal["requests", "tokens", "concurrency", "day", "month"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Something with limits. `name` identifies it within its tenant, `description` names it to the caller, and
    `usage` selects its usage in the ledger."""

    name: str
    description: str
    usage: Mapping[str, str]
    limits: Mapping[Kind, int]  # without what is unlimited

    @property
    def wire(self) -> dict[str, Any]:
        """The subject as `backend.lua` reads it."""
        return {"name": self.name} | dict(self.limits.items())

    def share(self, sharers: int) -> "Subject":
        """Return what each of `sharers` processes may grant on its own: one at least, and together no more."""
        return replace(self, limits={kind: max(1, limit // sharers) for kind, limit in self.limits.items() if limit})


def limited_subjects(caller: TenantPrincipal, adapter: ResolvedAdapter | None) -> tuple[Subject, ...]:
    """Return those subjects of a request that have limits."""
    found = [
        _subject("t", "this tenant", {}, caller.limits),
        _subject(f"k:{caller.key_id}", "this key", {"key_id": caller.key_id}, caller.key_limits),
    ]
    if adapter is not None:
        usage = {"adapter": adapter.name}
        found.append(_subject(f"a:{adapter.adapter_id}", f"the adapter '{adapter.name}'", usage, adapter.limits))
    return tuple(subject for subject in found if subject.limits)


def _subject(name: str, description: str, usage: Mapping[str, str], limits: Limits) -> Subject:
    fields: dict[Kind, int | None] = {
        "requests": limits.requests_per_minute,
        "tokens": limits.tokens_per_minute,
        "concurrency": limits.max_concurrency,
        "day": limits.tokens_per_day,
        "month": limits.tokens_per_month,
    }
    return Subject(name, description, usage, {kind: limit for kind, limit in fields.items() if limit is not None})
