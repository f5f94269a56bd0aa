"""The grammar of `model` in requests.

<base id>                 the base model alone
<adapter>                 the adapter's default alias
<adapter>:<version>       one version
<adapter>@<alias>         whatever the alias points at
ft:…                      what a fine-tuning job has made (loragate.finetune.jobs.model_name)
"""

import re
from dataclasses import dataclass

from loragate.gateway.errors import NotFound

_GRAMMAR = re.compile(
    r"(?P<adapter>[A-Za-z0-9][A-Za-z0-9._-]*)(?::(?P<version>[1-9][0-9]{0,8})|@(?P<alias>[A-Za-z0-9][A-Za-z0-9._-]*))?"
)


@dataclass(frozen=True, slots=True)
class AdapterName:
    """An adapter as a request names it; at most one of version and alias is given."""

    adapter: str
    version: int | None = None
    alias: str | None = None


def parse_adapter_name(model: str) -> AdapterName:
    """`model`, which is not the base model's id. Raises NotFound for what cannot name an adapter."""
    match = _GRAMMAR.fullmatch(model)
    if match is None:
        raise model_not_found(model)
    version = match["version"]
    return AdapterName(match["adapter"], int(version) if version else None, match["alias"])


def model_not_found(model: str) -> NotFound:
    """The one answer for a model that is missing, malformed or somebody else's."""
    return NotFound(
        f"The model '{model}' does not exist or you do not have access to it.",
        param="model",
        code="model_not_found",
    )
