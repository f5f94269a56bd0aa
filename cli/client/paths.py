"""Paths of the API with names in them that people typed."""

from urllib.parse import quote


def path(*parts: str | int) -> str:
    """The parts joined by slashes, each quoted: a name may hold one."""
    return "/" + "/".join(quote(str(part), safe="@") for part in parts)
