"""Names of fine-tuned models: `ft:<base>:<tenant>:<suffix>:<tail of the job's id>`, as OpenAI has them.

Such a name refers to an ordinary adapter, `<suffix>-<tail>`, which its tenant can list, promote and delete; it resolves
to the target of that adapter's alias `trained`. A checkpoint's name ends in `:ckpt-step-<step>`, which is an alias,
too.
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
_MAX_BASE, _MAX_TENANT = 100, 32
_MAX_ADAPTER = 64


@dataclass(frozen=True)
class TunedName:
    """The names of a job's result: `model` in requests, `adapter` in the registry."""

    model: str
    adapter: str

    def checkpoint(self, step: int) -> str:
        """Return the name of a checkpoint in requests."""
        return f"{self.model}:{checkpoint_alias(step)}"


@dataclass(frozen=True, slots=True)
class TunedAlias:
    """The adapter and alias that a fine-tuned model's name refers to."""

    adapter: str
    alias: str


def tuned_name(base: str, tenant: str, suffix: str | None, job_id: str) -> TunedName:
    """Return the names of the result of a job of the tenant named `tenant`."""
    tail = job_id[-_TAIL:]
    slug = _UNSUITABLE.sub("-", tenant).strip("-").lower()[:_MAX_TENANT] or "tenant"
    base_name = base.replace(":", "-")[-_MAX_BASE:]
    return TunedName(f"ft:{base_name}:{slug}:{suffix or ''}:{tail}", _adapter(suffix, tail))


def checkpoint_alias(step: int) -> str:
    """Return the alias that a checkpoint's name refers to."""
    return f"ckpt-step-{step}"


def parse_tuned_name(model: str) -> TunedAlias | None:
    """Return the adapter and alias that the name refers to, or None if it is not a fine-tuned model's name."""
    match = _NAME.fullmatch(model)
    return match and TunedAlias(_adapter(match[1], match[2]), match[3] or TRAINED)


def _adapter(suffix: str | None, tail: str) -> str:
    return f"{(suffix or _NO_SUFFIX)[: _MAX_ADAPTER - len(tail) - 1]}-{tail}"
