"""Paths of the API with names in them that people typed."""

from urllib.parse import quote


def path(*parts: str | int) -> str:
    """The parts joined by slashes, each quoted: a name may hold one."""
    return "/" + "/".join(quote(str(part), safe="@") for part in parts)


def version_path(name: str, version: int | None) -> str:
    """An adapter's, or that of one of its versions."""
    return path("v1", "adapters", name) if version is None else path("v1", "adapters", name, "versions", version)
