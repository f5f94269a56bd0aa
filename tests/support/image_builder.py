"""Images of deploy/docker, built by buildah without a registry, and containers of them without a container engine."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skip_for_missing import skip_for_missing

ROOT = Path(__file__).parent.parent.parent
BASE = "docker.io/library/debian:bookworm-slim"
_INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT")
_NOT_IN_SLIM = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
# The files of a container as `docker run --read-only --tmpfs /tmp --volume $data:/data` mounts them.
_CONTAINER = """
set -e
image=$1 data=$2 user=$3; shift 3
mount --bind "$image" "$image"
mount -o remount,bind,ro "$image"
mount --bind "$data" "$image/data"
mount -t tmpfs -o noexec,nosuid,nodev none "$image/tmp"
mount --rbind /dev "$image/dev"
mount -t proc proc "$image/proc"
exec chroot --userspec="$user" "$image" /usr/bin/env -i "$@"
"""


@dataclass(frozen=True)
class Image:
    """A built image, mounted at `files`."""

    name: str
    files: Path
    config: dict[str, Any]

    @property
    def disk_bytes(self) -> int:
        """Return the space that its files take on a disk."""
        used = subprocess.run(["du", "-s", "-B1", self.files], capture_output=True, text=True, check=True).stdout
        return int(used.split()[0])

    def start(self, data: Path, command: Sequence[str] = (), **environment: str) -> "subprocess.Popen[str]":
        """Start a container: the image's entrypoint with its own command or another one, as its user."""
        variables = [*self.config["Env"], *(f"{name}={value}" for name, value in environment.items())]
        words = [*self.config["Entrypoint"], *(command or self.config["Cmd"])]
        return subprocess.Popen(self._contained(data, variables, words), stdout=subprocess.PIPE, text=True)

    def run(self, data: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as `docker exec` does, without the entrypoint."""
        variables = [*self.config["Env"], *(f"{name}={value}" for name, value in environment.items())]
        return subprocess.run(self._contained(data, variables, command), capture_output=True, text=True, check=False)

    def _contained(self, data: Path, variables: Sequence[str], words: Sequence[str]) -> list[str]:
        script = ["unshare", "--mount", "sh", "-c", _CONTAINER, "sh"]
        return [*script, str(self.files), str(data), self.config["User"], *variables, *words]


class ImageBuilder:
    """buildah with a storage of its own in `folder`, which holds nothing but Debian at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._add_debian()

    def build(self, target: str) -> Image:
        """Build a target of the Dockerfile for CPUs."""
        options = ["--layers", "--isolation", "chroot", "--format", "docker", "--target", target, "--tag", target]
        self.buildah("build", *options, *_index_options(), "--file", "deploy/docker/Dockerfile", ".")
        container = self.buildah("from", "--pull-never", f"localhost/{target}")
        inspected = json.loads(self.buildah("inspect", "--type", "image", f"localhost/{target}"))
        return Image(target, Path(self.buildah("mount", container)), inspected["Docker"]["config"])

    def compressed_bytes(self, image: Image) -> int:
        """Return the size of the image's layers as a registry keeps them."""
        folder = self._folder / "pushed"
        self.buildah("push", "--quiet", "--format", "v2s2", "--disable-compression=false", image.name, f"dir:{folder}")
        manifest = json.loads((folder / "manifest.json").read_text())
        assert all(layer["mediaType"].endswith("gzip") for layer in manifest["layers"])
        shutil.rmtree(folder)
        return sum(layer["size"] for layer in manifest["layers"])

    def buildah(self, *arguments: str) -> str:
        storage = ("--root", self._folder / "storage", "--runroot", self._folder / "run")
        done = subprocess.run(["buildah", *storage, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def _add_debian(self) -> None:
        debian = self._folder / "debian"
        made = ["debootstrap", "--variant=minbase", "bookworm", str(debian)]
        done = subprocess.run(made, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        for name in _NOT_IN_SLIM:
            shutil.rmtree(debian / name)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(debian), "/")
        self.buildah("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(debian)


@contextmanager
def image_builder() -> Iterator[ImageBuilder]:
    """Yield a builder. Skip the test where there is none: it takes root, buildah, debootstrap and a Debian mirror."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            skip_for_missing(program)
    if os.geteuid() != 0:
        skip_for_missing("right to build images: that takes root")
    folder = Path(tempfile.mkdtemp(prefix="images-"))
    try:
        builder = ImageBuilder(folder)
        try:
            yield builder
        finally:
            builder.buildah("rm", "--all")
            builder.buildah("rmi", "--all", "--force")
    finally:
        shutil.rmtree(folder)


def _index_options() -> list[str]:
    """Return the options for the index of Python packages that this environment names, if any.

    They are build arguments; each folder or file of this machine that one names is a volume that the build can read.
    """
    options = []
    for name in _INDEX:
        words = os.environ.get(name, "").split()
        for number, word in enumerate(words):
            if Path(word.removeprefix("file://")).is_absolute():
                inside = f"/mnt/{name.lower()}-{number}"
                options += ["--volume", f"{word.removeprefix('file://')}:{inside}:ro"]
                words[number] = inside
        if words:
            options += ["--build-arg", f"{name}={' '.join(words)}"]
    return options
