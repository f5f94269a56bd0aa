"""A private Postgres for tests, if its binaries are installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from skip_for_missing import skip_for_missing

_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_OPTIONS = "-c listen_addresses='' -c unix_socket_directories='{home}' -c fsync=off -c max_connections=200"


@dataclass(frozen=True)
class PostgresServer:
    """A private cluster that listens on a Unix socket only."""

    socket_directory: Path
    autovacuum: bool

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_directory}"

    async def run(self, statement: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(user="postgres", database=database, host=str(self.socket_directory))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def start(self) -> None:
        vacuums = f" -c autovacuum={'on' if self.autovacuum else 'off'}"
        self._control("-o", _OPTIONS.format(home=self.socket_directory) + vacuums, "start")

    def stop(self) -> None:
        """Stop immediately, as in a crash; open connections are cut."""
        self._control("-m", "immediate", "stop")

    def _control(self, *command: str) -> None:
        home = self.socket_directory
        _run(home, "pg_ctl", "-D", str(home / "data"), "-w", "-l", str(home / "log"), *command)


@contextmanager
def private_postgres(*, autovacuum: bool = False) -> Iterator[PostgresServer]:
    """Run a cluster within the block. Autovacuum is off by default, as its connections prevent copying a database."""
    if not _BINARIES:
        skip_for_missing("Postgres")
    home = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if os.getuid() == 0:  # Postgres refuses to run as root
            shutil.chown(home, "postgres")
        _run(home, "initdb", "-D", str(home / "data"), "-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8")
        server = PostgresServer(home, autovacuum)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home)


def _run(home: Path, program: str, *arguments: str) -> None:
    owner: dict[str, Any] = {"user": "postgres"} if os.getuid() == 0 else {}
    subprocess.run([_BINARIES[-1] / program, *arguments], check=True, capture_output=True, cwd=home, **owner)
