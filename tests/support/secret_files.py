"""The files that deploy/kubernetes/secrets/make-secrets writes, in a copy of the folder."""

import re
import shutil
import subprocess
from pathlib import Path

from manifests import FOLDER, variables
from skip_for_missing import skip_for_missing

SECRET = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|AUTH|(DATABASE|REDIS)_URL")
_SOURCES = ("make-secrets", "loragate.env.example", "kustomization.yaml")


def make_secrets(folder: Path, *names: str) -> None:
    """Run make-secrets in a folder, into which it is copied if it is not there."""
    if shutil.which("openssl") is None:
        skip_for_missing("openssl")
    for source in _SOURCES:
        shutil.copy(FOLDER / "secrets" / source, folder / source)
    done = subprocess.run(["./make-secrets", *names], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def made_secrets(folder: Path) -> dict[str, str]:
    """Return the values of the Secret `loragate`, whose file make-secrets writes into a folder."""
    make_secrets(folder)
    return variables((folder / "loragate.env").read_text().splitlines())
