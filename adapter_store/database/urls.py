"""Mapping of database URLs as people write them to the async drivers."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from loragate.adapter_store.errors import Invalid

_POSTGRES = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})
_SQLITE = frozenset({"sqlite", "sqlite+aiosqlite"})


def driver_url(database_url: str) -> URL:
    """Return the URL for SQLAlchemy's async engine, from `sqlite:///path` or `postgresql://…`.

    Raise Invalid for anything else, without repeating the URL, which may hold a password.
    """
    try:
        url = make_url(database_url)
    except ArgumentError:
        raise _invalid("is not a URL") from None
    if url.drivername in _SQLITE:
        return _sqlite(url)
    if url.drivername in _POSTGRES:
        return _postgres(url)
    raise _invalid(f"has the scheme `{url.drivername}`")


def _sqlite(url: URL) -> URL:
    if not url.database or ":memory:" in url.database:
        raise _invalid("names no file, and several processes cannot share memory")
    return url.set(drivername="sqlite+aiosqlite")


def _postgres(url: URL) -> URL:
    """Rename libpq's `sslmode` to asyncpg's `ssl`."""
    query = dict(url.query)
    if "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    return url.set(drivername="postgresql+asyncpg", query=query)


def _invalid(reason: str) -> Invalid:
    return Invalid(
        f"The database URL {reason}; use sqlite:///path/to/file or postgresql://user@host/database.",
        param="database_url",
    )
