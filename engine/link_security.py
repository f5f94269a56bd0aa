"""What protects the link between the engine and its clients: a secret with every call, and, between machines, TLS with
certificates on both sides."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

METADATA_KEY = "loragate-engine-secret"  # of the secret in a call's metadata
PREVIOUS_METADATA_KEY = "loragate-engine-previous-secret"  # of each secret from before a rotation
MAX_PREVIOUS_SECRETS = 8
_LOCAL_NAMES = ("localhost", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class LinkTls:
    """PEM files of an engine's clients: `ca` has the engines' certificates or that of the authority that signed them;
    `cert` and `key` are what clients show."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(each for each in (self.ca, self.cert, self.key) if each is not None)


def metadata_of(secret: str, previous: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a client's calls. The previous secrets open an engine that does not know the new one yet:
    after a rotation, clients and the engine can be restarted in any order."""
    return ((METADATA_KEY, secret), *((PREVIOUS_METADATA_KEY, each) for each in previous[:MAX_PREVIOUS_SECRETS]))


def is_local(address: str) -> bool:
    """Return whether only this machine can reach a gRPC address: a Unix socket, or a port of a loopback address."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.removeprefix("ipv4:").removeprefix("ipv6:").removeprefix("dns:").removeprefix("///")
    host = host.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL_NAMES


def is_unix(address: str) -> bool:
    """Return whether a gRPC address is a Unix socket, on which TLS is never used."""
    return address.startswith(("unix:", "unix-abstract:"))


def check_target(target: str, tls: LinkTls | None) -> None:
    """Raise ValueError for an engine on another machine without TLS on both sides: without it, prompts, answers and the
    secret could be read on the network, and the secret alone would be enough to call the engine."""
    if is_local(target):
        return
    if tls is None:
        raise ValueError(
            f"the engine at {target} (engine_target) is reached over a network, which needs TLS: set "
            "LORAGATE_ENGINE_CA to its certificate or that of the authority which signed it, or use a loopback address"
        )
    if tls.cert is None or tls.key is None:
        raise ValueError(
            f"the engine at {target} (engine_target) is reached over a network, where its clients need a certificate, "
            "too: set LORAGATE_ENGINE_CLIENT_CERT and LORAGATE_ENGINE_CLIENT_KEY (`loragate certs` makes all of them), "
            "or use a loopback address"
        )
