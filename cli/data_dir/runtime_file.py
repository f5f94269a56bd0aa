"""`runtime.json` in the data directory: the addresses and process ids of a running server, for scripts and commands."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from loragate.cli.data_dir.private_file import replace_private
from loragate.gateway.connections.tls import ClientTls

FILE_NAME = "runtime.json"


@dataclass(frozen=True)
class Pids:
    """Process ids; None for a part that does not run. `engine` is the first one."""

    supervisor: int
    gateway: tuple[int, ...]
    engine: int | None
    finetune: int | None = None
    trainer: int | None = None
    panel: int | None = None


@dataclass(frozen=True)
class RunningEngine:
    """An engine of this server; `pid` is None while it does not run."""

    id: str
    target: str
    pid: int | None


@dataclass(frozen=True)
class Runtime:
    """The addresses of a running server's parts; None for a part that does not run.

    `tls_cert` is the file with the certificate that its ports show; None without TLS. `client_cert` is the one with the
    certificate and key that commands show to a server which demands one.
    `optional` are the parts that the server can do without, each with its problem, or None.
    """

    base_url: str
    pids: Pids
    grpc_target: str | None = None
    panel_url: str | None = None
    optional: Mapping[str, str | None] = field(default_factory=dict)
    tls_cert: str | None = None
    client_cert: str | None = None
    engines: tuple[RunningEngine, ...] = ()


def write(data_dir: Path, runtime: Runtime) -> None:
    """Replace the file atomically, readable only by its owner."""
    replace_private(data_dir / FILE_NAME, json.dumps(asdict(runtime), indent=2).encode())


def remove(data_dir: Path) -> None:
    """Remove the file, because no server is running."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)


@dataclass(frozen=True)
class Running:
    """A server that runs on this machine, as clients reach it. See Runtime."""

    base_url: str
    tls_cert: Path | None
    client_cert: Path | None


def read(data_dir: Path) -> Running | None:
    """Return the running server, or None if no server is running."""
    try:
        content = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = content if isinstance(content, dict) else {}
    url = found.get("base_url")
    if not isinstance(url, str):
        return None
    files = [found.get(name) for name in ("tls_cert", "client_cert")]
    return Running(url, *(Path(each) if isinstance(each, str) else None for each in files))


@dataclass(frozen=True)
class Addresses:
    """The server's addresses, known before any part runs because the supervisor holds the ports."""

    base_url: str
    grpc_target: str
    panel_url: str | None = None
    tls: ClientTls | None = None  # of clients on this machine; None: no TLS
