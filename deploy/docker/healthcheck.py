#!/usr/bin/python3 -IS
"""Exit with 0 if this container's server is ready, else with 1; with `--worker`, if its fine-tune worker runs."""

import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path


def is_server_ready() -> bool:
    """Return whether `/readyz` answers 200."""
    scheme = "https" if os.environ.get("LORAGATE_TLS_CERT") else "http"
    url = f"{scheme}://127.0.0.1:{os.environ.get('LORAGATE_PORT') or 8000}/readyz"
    # The certificate names the address that clients use, which this is not; nothing secret is sent.
    unverified = ssl._create_unverified_context()  # noqa: S323
    own = Path(os.environ.get("LORAGATE_DATA_DIR", "/data")) / "client.pem"  # of the server, for its own clients
    if own.exists():
        unverified.load_cert_chain(own)
    try:
        with urllib.request.urlopen(url, timeout=4, context=unverified) as answer:  # noqa: S310
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def is_worker_running() -> bool:
    """Return whether the process that wrote the workspace's pidfile runs."""
    workspace = os.environ.get("LORAGATE_FINETUNE__WORKSPACE")
    folder = Path(workspace) if workspace else Path(os.environ["LORAGATE_DATA_DIR"]) / "finetune"
    try:
        command = Path(f"/proc/{(folder / 'pid').read_text()}/cmdline").read_bytes()
    except OSError:
        return False
    return b"finetune-worker" in command


if __name__ == "__main__":
    sys.exit(not (is_worker_running() if "--worker" in sys.argv else is_server_ready()))
