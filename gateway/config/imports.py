"""Sources from which adapters may be imported."""

import re
from dataclasses import dataclass, field

_HOST = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)+")
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9._-]*)*")


@dataclass(frozen=True, slots=True)
class BucketGrant:
    """Everything below `path` ("bucket" or "bucket/prefix"), for these tenants by id; None: for all of them."""

    path: str
    tenants: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.path):
            raise ValueError(f"imports.buckets must name a bucket or bucket/prefix, got {self.path!r}")

    def covers(self, path: str) -> bool:
        """Return whether the grant's path is `path` or contains it."""
        return f"{path}/".startswith(f"{self.path}/")


@dataclass(frozen=True, slots=True)
class ImportConfig:
    """`hub` is where `hf://` leads, None for nowhere; `hosts` are those that it may redirect to.

    A host is a name, "*.name" for all below it, or an origin ("https://mirror.example:8443"). Names are reached over
    https on port 443, at public addresses only. An origin is what the operator wrote out: it may be anywhere, the
    machine itself included.
    """

    hub: str | None = "https://huggingface.co"
    hosts: tuple[str, ...] = ("huggingface.co", "*.huggingface.co", "*.hf.co")
    buckets: tuple[BucketGrant, ...] = field(default=())
    max_concurrent: int = 2  # imports that one process fetches; the others wait

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not _HOST.fullmatch(host) and not _ORIGIN.fullmatch(host):
                raise ValueError(f"imports.hosts takes names, *.names and origins (https://host:port), got {host!r}")
        if self.hub is not None and not _ORIGIN.fullmatch(self.hub):
            raise ValueError(f"imports.hub must be an origin (https://host), got {self.hub!r}")
        if self.max_concurrent < 1:
            raise ValueError(f"imports.max_concurrent must be at least 1, got {self.max_concurrent}")

    def grants(self, path: str, tenant_id: str) -> bool:
        """Return whether the tenant may import from `path`."""
        return any(
            grant.covers(path) and (grant.tenants is None or tenant_id in grant.tenants) for grant in self.buckets
        )

    def check_apart(self, blob_url: str) -> None:
        """Raise ValueError if a grant would give access to the store's own blobs, which contain all tenants'
        adapters."""
        scheme, _, blobs = blob_url.partition("://")
        for grant in self.buckets if scheme in ("s3", "s3a") else ():
            if grant.covers(blobs.rstrip("/")) or f"{grant.path}/".startswith(f"{blobs.rstrip('/')}/"):
                raise ValueError(f"imports.buckets: {grant.path} is where the adapters of all tenants are kept")
