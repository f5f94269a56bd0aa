import errno
import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from loragate.adapter_store import errors
from loragate.adapter_store.database.error_mapping import blob_faults, database_faults
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.errors import Conflict, Invalid, StorageFull, StoreError, Unavailable


def _tree(kind: type[StoreError]) -> list[type[StoreError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in _tree(child))]


def test_the_docstring_draws_the_tree() -> None:
    drawing = errors.__doc__ or ""
    for kind in _tree(StoreError):
        assert kind.__name__ in drawing
        assert 400 <= kind.status < 600
        assert kind("words").code == kind.default_code


def _full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (PoolTimeoutError("pool"), Unavailable),
        (OperationalError("x", {}, sqlite3.OperationalError("database is locked")), Unavailable),
        (InterfaceError("x", {}, Exception("connection is closed")), Unavailable),
        (OperationalError("x", {}, _full()), StorageFull),
        (IntegrityError("x", {}, Exception("UNIQUE")), Conflict),
        (ConnectionRefusedError(), Unavailable),
        (TimeoutError(), Unavailable),
        (FileNotFoundError(), Unavailable),
        (ProgrammingError(None, None, Exception("no such database")), Unavailable),
        (ProgrammingError("x", {}, Exception("a bug")), ProgrammingError),
    ],
)
def test_database_errors_are_mapped_to_ours(raised: Exception, reported: type[Exception]) -> None:
    with pytest.raises(reported), database_faults():
        raise raised


@pytest.mark.parametrize(
    ("number", "reported"), [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, Unavailable)]
)
def test_disk_errors_are_mapped_to_ours(number: int, reported: type[Exception]) -> None:
    with pytest.raises(reported), blob_faults():
        raise OSError(number, "")


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///a/b.db", "sqlite+aiosqlite:///a/b.db"),
        ("sqlite:////a/b.db", "sqlite+aiosqlite:////a/b.db"),
        ("sqlite+aiosqlite:///b.db", "sqlite+aiosqlite:///b.db"),
        ("postgres://u@h/d", "postgresql+asyncpg://u@h/d"),
        ("postgresql://u@h:1/d?sslmode=require", "postgresql+asyncpg://u@h:1/d?ssl=require"),
    ],
)
def test_database_urls_in_common_spellings(given: str, driver: str) -> None:
    assert driver_url(given).render_as_string(hide_password=False) == driver


@pytest.mark.parametrize(
    "url", ["", "x", "mysql://u:hunter2@h/d", "sqlite://", "sqlite:///:memory:", "a://u:hunter2@["]
)
def test_other_urls_are_rejected_without_their_password(url: str) -> None:
    with pytest.raises(Invalid) as rejected:
        driver_url(url)
    assert "hunter2" not in rejected.value.message
    assert rejected.value.param == "database_url"
