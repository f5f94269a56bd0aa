"""Commands of other threads to the step loop."""

from dataclasses import dataclass

from loragate.engine.adapters.slot import Copy
from loragate.engine.grammar.compiler import Compiled
from loragate.engine.grammar.spec import Grammar
from loragate.engine.layers.patch import HostAdapter, Patch, Patchable
from loragate.engine.sequence.request import AdapterKey, Request


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """End one request of a session, or all of them when `request_id` is None; with `index` only that completion."""

    session_id: int
    request_id: int | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class AdapterRead:
    """An adapter is in host memory."""

    key: AdapterKey
    host: HostAdapter


@dataclass(frozen=True, slots=True)
class AdapterFailed:
    key: AdapterKey
    reason: str


@dataclass(frozen=True, slots=True)
class AdapterCopied:
    """An adapter is on the device, or could not be copied there."""

    copy: Copy
    result: dict[Patchable, Patch] | Exception


@dataclass(frozen=True, slots=True)
class Pin:
    """Keep these adapters on the device, in place of those pinned before."""

    keys: tuple[AdapterKey, ...]


@dataclass(frozen=True, slots=True)
class Preload:
    """Read these adapters into host memory."""

    keys: tuple[AdapterKey, ...]


@dataclass(frozen=True, slots=True)
class Retire:
    """Release these adapters, each as soon as it is unused."""

    keys: tuple[AdapterKey, ...]


@dataclass(frozen=True, slots=True)
class GrammarCompiled:
    tenant_id: str
    grammar: Grammar
    result: Compiled


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Submit | Abort | AdapterRead | AdapterFailed | AdapterCopied | GrammarCompiled | Pin | Preload | Retire | Stop
