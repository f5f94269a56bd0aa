"""Where engines are: their ids and gRPC targets."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from loragate.engine.link_security import LinkTls, check_target

FIRST_ENGINE = "engine-0"
"""The id of the engine that is configured as the only one."""

MAX_ENGINE_ID = 64
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """An engine's id, unique in its fleet, and its gRPC target: "unix:/…/engine.sock" or "host:port"."""

    id: str
    target: str
    certificate_name: str | None = None  # in its certificate, if it is not the target's

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"the id of an engine must be 1 to 64 of A-Z a-z 0-9 . _ -, got {self.id!r}")
        if not self.target:
            raise ValueError(f"engine {self.id} has no address")


def engine_address(text: str) -> EngineAddress:
    """Return the address that `text` names: "id=target", or a target, from which the id is made. Raise ValueError."""
    id_, separator, target = text.rpartition("=")
    return EngineAddress(id_ if separator else engine_id_of(target), target)


def engine_id_of(target: str) -> str:
    """Return an id for the engine at this target, the same one each time."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", target.removeprefix("unix:")).strip("-")
    return name[-MAX_ENGINE_ID:] or "engine"


def engine_addresses(first: str | None, more: Iterable[EngineAddress]) -> tuple[EngineAddress, ...]:
    """Return all configured engines; the one at the target `first` has the id of a single engine."""
    return (*([] if first is None else [EngineAddress(FIRST_ENGINE, first)]), *more)


def check_addresses(addresses: Iterable[EngineAddress], tls: LinkTls | None) -> None:
    """Raise ValueError for two engines with the same id, or one on another machine without TLS."""
    seen: set[str] = set()
    for each in addresses:
        if each.id in seen:
            raise ValueError(f"two engines have the id {each.id} (engine_targets): name one as ID=ADDRESS")
        seen.add(each.id)
        check_target(each.target, tls)
