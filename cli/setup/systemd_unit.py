"""The systemd unit of a server: one that can write to its data only, and whose memory is bounded."""

import getpass
import sys
from collections.abc import Iterable
from pathlib import Path

from loragate.cli.settings.model import Settings

# Not among them: what keeps bubblewrap from making the sandbox of training (RestrictNamespaces, SystemCallFilter,
# ProtectKernelTunables, ProtectKernelLogs), compiled kernels from running (MemoryDenyWriteExecute), and GPUs from being
# seen (PrivateDevices, ProtectClock).
_UNIT = """\
# systemd unit of loragate, written by `loragate init`. To install it:
#   sudo cp {name} /etc/systemd/system/ && sudo systemctl daemon-reload && sudo systemctl enable --now {stem}
[Unit]
Description=loragate: one base model, many tenants, many LoRA adapters
After=network-online.target
Wants=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Environment={environment}
Restart=on-failure
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec={stop_seconds}
UMask=0077
LimitNOFILE=65536
MemoryMax={memory_max}

NoNewPrivileges=yes
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
ProtectSystem=strict
ReadWritePaths={data_dir}
ProtectHome={protect_home}
PrivateTmp=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""
_GRACE_SECONDS = 45  # of the engine and the fine-tune worker, after the gateways have drained
_PRIVILEGED_PORTS = 1024


def unit(settings: Settings, config: Path, file: Path, *, memory_max: str = "90%") -> str:
    """Return the unit for a settings file, to be written into `file`. The server runs as the user who calls this."""
    program = Path(sys.prefix, "bin/loragate")
    command = [program] if program.exists() else [sys.executable, "-P", "-m", "loragate.cli.main"]
    cache = settings.data_dir / "cache"
    low = any(0 < port < _PRIVILEGED_PORTS for port in (settings.port, settings.grpc_port, settings.panel_port))
    homes = (config, settings.data_dir, Path(sys.prefix), Path(sys.executable).resolve())
    return _UNIT.format(
        name=file.name,
        stem=file.stem,
        user=getpass.getuser(),
        folder=_escaped(config.parent),
        command=_quoted([*command, "serve", "--config", config, "--data-dir", settings.data_dir]),
        environment=_quoted([f"XDG_CACHE_HOME={cache}", f"TRITON_CACHE_DIR={cache}/triton"]),
        stop_seconds=round(settings.drain_seconds) + _GRACE_SECONDS,
        memory_max=memory_max,
        capabilities="CAP_NET_BIND_SERVICE" if low else "",
        data_dir=_quoted([settings.data_dir]),
        protect_home="read-only" if any(map(_in_a_home, homes)) else "yes",
    )


def _in_a_home(path: Path) -> bool:
    return path.is_relative_to("/home") or path.is_relative_to("/root") or path.is_relative_to("/run/user")


def _escaped(word: object) -> str:
    return str(word).replace("%", "%%")  # which begins a specifier


def _quoted(words: Iterable[object]) -> str:
    quoted = (_escaped(word).replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return " ".join(f'"{word}"' if " " in word else word for word in quoted)
