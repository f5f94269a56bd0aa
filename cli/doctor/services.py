"""The database, the blobs, Redis and the port."""

import asyncio
from contextlib import closing

import fsspec
from fsspec.utils import get_protocol
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from loragate.adapter_store.database import Database
from loragate.adapter_store.errors import SchemaMismatch, StoreError
from loragate.adapter_store.schema import require_current
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.refusal import Refusal
from loragate.cli.settings import Settings
from loragate.cli.supervisor import runtime_file
from loragate.cli.supervisor.ports import listen

_REDIS_SECONDS = 2.0


def check_services(settings: Settings) -> list[Finding]:
    """Each is asked once, within seconds."""
    return [check_database(settings), check_blobs(settings), check_redis(settings), check_port(settings)]


def check_database(settings: Settings) -> Finding:
    """Reachable, and with this version's schema."""
    if settings.database_url is None and not (settings.data_dir / "loragate.db").exists():
        return ok("database", "SQLite in the data directory, made at the first start")
    kind = settings.effective_database_url.split(":", 1)[0]
    try:
        asyncio.run(_ask_database(settings.effective_database_url))
    except SchemaMismatch as error:
        return warn("database", error.message, "`loragate serve` brings an older one up to date")
    except StoreError as error:
        return fail("database", error.message, "check LORAGATE_DATABASE_URL and that the database runs")
    return ok("database", f"{kind}, schema up to date")


async def _ask_database(url: str) -> None:
    database = Database(url)
    try:
        await require_current(database)
    finally:
        await database.close()


def check_blobs(settings: Settings) -> Finding:
    """Whether the driver for the blob URL is installed."""
    protocol = get_protocol(settings.effective_blob_url)
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        return fail("blobs", f"{protocol}: {error}", "install the driver, or correct LORAGATE_BLOB_URL")
    return ok("blobs", "local disk" if protocol == "file" else protocol)


def check_redis(settings: Settings) -> Finding:
    """Needed for more than one gateway process."""
    if settings.redis_url is None:
        if settings.workers > 1:
            return fail("Redis", "not configured", f"{settings.workers} workers need one: set LORAGATE_REDIS_URL")
        return ok("Redis", "not configured; one gateway process needs none")
    try:
        with closing(
            Redis.from_url(
                settings.redis_url,
                socket_timeout=_REDIS_SECONDS,
                socket_connect_timeout=_REDIS_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        ) as redis:
            redis.ping()
    except (RedisError, ValueError, OSError) as error:
        return fail("Redis", f"does not answer: {error}", "start it, or correct LORAGATE_REDIS_URL")
    return ok("Redis", "answers")


def check_port(settings: Settings) -> Finding:
    """Free, or held by the server that runs here."""
    running = runtime_file.base_url(settings.data_dir)
    if running is not None:
        return ok("port", f"a server runs at {running}")
    try:
        listen(settings.host, settings.port).close()
    except Refusal as refusal:
        return fail("port", refusal.message, "")
    return ok("port", f"{settings.port} on {settings.host} is free")
