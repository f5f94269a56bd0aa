"""What a job's result is called: `ft:<base>:<tenant>:<suffix>:<tail of the job's id>`, as with OpenAI.

Behind the name is an adapter as any other, `<suffix>-<tail>`, which its tenant may list, promote and delete; the name
means what its alias `trained` points at.
"""

import re
from dataclasses import dataclass

TRAINED = "trained"
_TAIL = 8
_UNSUITABLE = re.compile(r"[^A-Za-z0-9]+")
_NAME = re.compile(r"ft:[^:]+:[a-z0-9-]+:([A-Za-z0-9-]*):([0-9A-Za-z]{8})")
_NO_SUFFIX = "ft"


@dataclass(frozen=True)
class TunedName:
    """`model` for requests, `adapter` for the registry."""

    model: str
    adapter: str


def tuned_name(base: str, tenant: str, suffix: str | None, job_id: str) -> TunedName:
    """Of a job of the tenant with this name."""
    tail = job_id[-_TAIL:]
    slug = _UNSUITABLE.sub("-", tenant).strip("-").lower() or "tenant"
    return TunedName(f"ft:{base}:{slug}:{suffix or ''}:{tail}", f"{suffix or _NO_SUFFIX}-{tail}")


def adapter_of(model: str) -> str | None:
    """The adapter behind such a name; None for what is none."""
    match = _NAME.fullmatch(model)
    return match and f"{match[1] or _NO_SUFFIX}-{match[2]}"
