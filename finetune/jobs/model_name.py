"""What a job's result is called: `ft:<base>:<tenant>:<suffix>:<tail of the job's id>`, as with OpenAI.

Behind the name is an adapter as any other, `<suffix>-<tail>`, which its tenant may list, promote and delete; the name
means what its alias `trained` points at. A checkpoint's name ends in `:ckpt-step-<step>`, which is an alias, too.
"""

import re
from dataclasses import dataclass

TRAINED = "trained"
SUFFIX = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_TAIL = 8
_UNSUITABLE = re.compile(r"[^A-Za-z0-9]+")
_NAME = re.compile(
    rf"ft:[^:\x00-\x1f]+:[a-z0-9-]+:({SUFFIX})?:([0-9A-Za-z]{{{_TAIL}}})(?::(ckpt-step-[1-9][0-9]{{0,8}}))?"
)
_NO_SUFFIX = "ft"
_LONGEST_BASE, _LONGEST_TENANT = 100, 32
_LONGEST_ADAPTER = 64


@dataclass(frozen=True)
class TunedName:
    """`model` for requests, `adapter` for the registry."""

    model: str
    adapter: str

    def checkpoint(self, step: int) -> str:
        """A checkpoint's name for requests."""
        return f"{self.model}:{checkpoint_alias(step)}"


@dataclass(frozen=True, slots=True)
class TunedAlias:
    """What such a name means."""

    adapter: str
    alias: str


def tuned_name(base: str, tenant: str, suffix: str | None, job_id: str) -> TunedName:
    """Of a job of the tenant with this name."""
    tail = job_id[-_TAIL:]
    slug = _UNSUITABLE.sub("-", tenant).strip("-").lower()[:_LONGEST_TENANT] or "tenant"
    told = base.replace(":", "-")[-_LONGEST_BASE:]
    return TunedName(f"ft:{told}:{slug}:{suffix or ''}:{tail}", _adapter(suffix, tail))


def checkpoint_alias(step: int) -> str:
    """The alias behind a checkpoint's name."""
    return f"ckpt-step-{step}"


def parse_tuned_name(model: str) -> TunedAlias | None:
    """The alias behind such a name; None for what is none."""
    match = _NAME.fullmatch(model)
    return match and TunedAlias(_adapter(match[1], match[2]), match[3] or TRAINED)


def _adapter(suffix: str | None, tail: str) -> str:
    return f"{(suffix or _NO_SUFFIX)[: _LONGEST_ADAPTER - len(tail) - 1]}-{tail}"
