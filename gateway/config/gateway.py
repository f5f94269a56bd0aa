"""The gateway's settings, parsed once at the edge and frozen here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.signatures.policy import UNSIGNED, SignaturePolicy
from loragate.engine.fleet.addresses import EngineAddress, check_addresses, engine_addresses
from loragate.engine.link_security import LinkTls
from loragate.engine.server_tls import TlsFiles
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.config.prices import Price
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.config.tracing import TracingConfig
from loragate.gateway.http.bodies import Pace
from loragate.gateway.reasoning.detection import FORMATS as REASONING_FORMATS
from loragate.gateway.tools.formats.detection import FORMATS

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")
_REDIS_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")

DEFAULT_LIMITS = TenantLimits(
    requests_per_minute=600_000,
    tokens_per_minute=100_000_000,
    max_objects=100_000,
    max_unfinished_jobs=32,
    max_unfinished_batches=32,
    max_training_sessions=32,
    max_training_runs=64,
    max_stored_responses=100_000,
)
"""More than one machine can serve. They exist so that every response can report what remains."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The services to which one gateway process connects, and the limits that it enforces."""

    database_url: str  # SQLAlchemy's async form, e.g. "sqlite+aiosqlite:////var/lib/loragate/loragate.db"
    blob_url: str  # fsspec's form, e.g. "file:///var/lib/loragate/blobs"
    secret_key: bytes = field(repr=False)  # the primary one
    engine_target: str | None  # "unix:/…/engine.sock" or "host:port" of the first engine
    data_dir: Path  # uploads are spooled here
    engines: tuple[EngineAddress, ...] = ()  # further ones, beside those that are registered in the database
    engine_secret: str = field(default="", repr=False)  # which the engine demands
    previous_secret_keys: tuple[bytes, ...] = field(default=(), repr=False)
    previous_engine_secrets: tuple[str, ...] = field(default=(), repr=False)
    engine_tls: LinkTls | None = None  # of engines on other machines
    tls: TlsFiles | None = None  # of the HTTP and the gRPC port
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-For is believed
    cors_origins: tuple[str, ...] = ()  # of pages that may call the API from a browser; "*": of all
    grpc_listen: str | None = None  # "host:port", port 0 picks a free one; None: no gRPC
    redis_url: str | None = field(default=None, repr=False)  # None: this is the only process
    redis_prefix: str = "loragate"  # of all names there
    workers: int = 1  # gateway processes that accept from the same listener
    sharers: int = 1  # gateway processes under one set of limits: replicas times workers
    default_limits: TenantLimits = DEFAULT_LIMITS  # of tenants that are created without limits
    drain_seconds: float = 25.0  # running requests get this long after SIGTERM
    heartbeat_timeout: float = 15.0  # seconds of silence after which a running engine counts as hung
    oidc: OidcConfig | None = None  # None: operators have the admin key only
    tracing: TracingConfig | None = None  # None: nothing is traced
    snapshot_seconds: float = 5.0  # a revoked key works, and an old alias target is used, for at most this long
    key_use_seconds: float = 30.0  # how often the last use of keys is written
    stall_seconds: float = 60.0  # a client that takes no bytes, or sends none, for this long is dropped
    upload_stall_seconds: float = 10.0  # an upload without a byte for this long is ended
    min_upload_bytes_per_second: float = 10_000.0  # over the last `upload_window_seconds`
    upload_window_seconds: float = 30.0
    max_connections: int = 16_384  # HTTP connections of one process; fewer where it may open fewer files
    min_free_bytes: int = 1 << 30  # of a local disk, which uploads never use: the database and usage records need it
    upload_disk_share: float = 0.5  # of the disk's free space that one process may use for uploads under way
    max_json_bytes: int = 8 << 20
    max_tokenizing_bytes: int = 64 << 20  # text of long prompts that is being tokenized at a time; a tenant has half
    special_tokens_in_prompts: bool = True  # a special token spelled in a plain prompt is this token, otherwise text
    prefix_cache_by_user: bool = False  # a tenant's requests with different `user`s share no prefix cache
    max_buffered_body_bytes: int = 256 << 20  # of bodies that arrive or wait to be parsed, in one process
    max_upload_bytes: int = 4 << 30  # an adapter, or a file in parts
    max_file_bytes: int = 512 << 20  # a file in one request
    max_changes_per_minute: int | None = 600  # of a tenant's adapters, files, jobs and keys, by one process
    max_n: int = 16  # completions of one prompt
    max_prompts: int = 64  # prompts of one request
    max_batch_concurrency: int = 64  # lines of batches that one process runs at a time; 0: it runs none
    default_chat_tokens: int = 4096  # limit of a chat completion whose request gives no max_tokens
    first_token_deadline_seconds: float | None = None  # requests that cannot produce a token by then are rejected
    max_queue_seconds: float = 30.0  # requests that would wait longer in the engine are rejected; inf: none
    prices: tuple[Price, ...] = ()  # of tokens; the most specific one applies
    batch_price_factor: Decimal = Decimal("0.5")  # of the prices, for lines of batches
    currency: str = "USD"  # of the prices
    deleted_retention_hours: float = 168.0  # adapters can be restored for so long
    usage_retention_days: int | None = None  # of the ledger's rows, one per request; None: for ever. Sums are kept.
    audit_retention_days: int | None = None  # of the audit log's events; None: for ever
    job_event_retention_days: int | None = None  # of the events of jobs, after their end; None: for ever
    responses: ResponsesConfig = ResponsesConfig()  # noqa: RUF009 (frozen)
    imports: ImportConfig = ImportConfig()  # noqa: RUF009 (frozen)
    signatures: SignaturePolicy = UNSIGNED  # of adapters that are published
    tool_parser: str | None = None  # how the model writes tool calls; None: detected from its chat template
    reasoning_parser: str | None = None  # how the model writes its reasoning; None: detected from its chat template
    merged_exports: bool = False  # keys with the scope `export` get the base model's weights, merged with an adapter
    reasoning_content: bool = False  # messages also carry their reasoning under DeepSeek's name

    @property
    def engine_addresses(self) -> tuple[EngineAddress, ...]:
        """Return the engines that are used whether they are registered or not."""
        return engine_addresses(self.engine_target, self.engines)

    def __post_init__(self) -> None:
        self.imports.check_apart(self.blob_url)
        if not _REDIS_PREFIX.fullmatch(self.redis_prefix):
            raise ValueError(f"redis_prefix must be 1 to 64 of A-Z a-z 0-9 . _ -, got {self.redis_prefix!r}")
        check_origins(self.cors_origins)
        check_addresses(self.engine_addresses, self.engine_tls)
        if self.redis_url is None and self.sharers > 1:
            raise ValueError(f"redis_url is needed for {self.sharers} gateway processes to share their limits")
        counts = ("workers", "sharers", "max_json_bytes", "max_upload_bytes", "max_file_bytes", "max_n", "max_prompts")
        for name in (*counts, "default_chat_tokens", "max_connections"):
            if getattr(self, name) < 1:
                raise ValueError(f"gateway.{name} must be at least 1, got {getattr(self, name)}")
        if self.max_buffered_body_bytes < 2 * self.max_json_bytes:
            raise ValueError(
                f"gateway.max_buffered_body_bytes must be at least {2 * self.max_json_bytes}, twice the largest body, "
                f"got {self.max_buffered_body_bytes}"
            )
        uploads = ("upload_stall_seconds", "min_upload_bytes_per_second", "upload_window_seconds")
        for name in ("heartbeat_timeout", "stall_seconds", "key_use_seconds", *uploads):
            if getattr(self, name) <= 0:
                raise ValueError(f"gateway.{name} must be positive, got {getattr(self, name)}")
        if self.max_tokenizing_bytes < 2 * self.max_json_bytes:
            raise ValueError(
                f"gateway.max_tokenizing_bytes must be at least twice max_json_bytes ({self.max_json_bytes}), "
                f"got {self.max_tokenizing_bytes}"
            )
        deadline = self.first_token_deadline_seconds
        if deadline is not None and deadline <= 0:
            raise ValueError(f"gateway.first_token_deadline_seconds must be positive, got {deadline}")
        if not self.max_queue_seconds > 0:
            raise ValueError(f"gateway.max_queue_seconds must be positive, got {self.max_queue_seconds}")
        if self.drain_seconds < 0:
            raise ValueError(f"gateway.drain_seconds must not be negative, got {self.drain_seconds}")
        if self.max_changes_per_minute is not None and self.max_changes_per_minute < 1:
            raise ValueError(f"gateway.max_changes_per_minute must be at least 1, got {self.max_changes_per_minute}")
        if self.min_free_bytes < 0:
            raise ValueError(f"gateway.min_free_bytes must not be negative, got {self.min_free_bytes}")
        if not 0 < self.upload_disk_share <= 1:
            raise ValueError(f"gateway.upload_disk_share must be above 0 and at most 1, got {self.upload_disk_share}")
        if self.max_batch_concurrency < 0:
            raise ValueError(f"gateway.max_batch_concurrency must not be negative, got {self.max_batch_concurrency}")
        if not 0 <= self.batch_price_factor <= 1:
            raise ValueError(f"batch_price_factor must be between 0 and 1, got {self.batch_price_factor}")
        if self.deleted_retention_hours < 0:
            raise ValueError(f"deleted_retention_hours must not be negative, got {self.deleted_retention_hours}")
        if self.tool_parser is not None and self.tool_parser not in FORMATS:
            raise ValueError(f"gateway.tool_parser must be one of {', '.join(FORMATS)}, got {self.tool_parser!r}")
        if self.reasoning_parser is not None and self.reasoning_parser not in REASONING_FORMATS:
            names = ", ".join(REASONING_FORMATS)
            raise ValueError(f"gateway.reasoning_parser must be one of {names}, got {self.reasoning_parser!r}")
        if self.usage_retention_days is not None and self.usage_retention_days < MIN_RETENTION_DAYS:
            raise ValueError(
                f"usage_retention_days must be at least {MIN_RETENTION_DAYS}, got {self.usage_retention_days}"
            )
        for name in ("audit_retention_days", "job_event_retention_days"):
            days = getattr(self, name)
            if days is not None and days < 1:
                raise ValueError(f"{name} must be at least 1, got {days}")
        if not 0 <= self.snapshot_seconds <= 5:
            raise ValueError(f"gateway.snapshot_seconds must be 0 to 5, got {self.snapshot_seconds}")

    @property
    def body_pace(self) -> Pace:
        """The pace required of bodies that are read into memory."""
        return Pace(self.stall_seconds)

    @property
    def upload_pace(self) -> Pace:
        """The pace required of uploads, which use disk space meanwhile."""
        stall = min(self.stall_seconds, self.upload_stall_seconds)
        return Pace(stall, self.min_upload_bytes_per_second, self.upload_window_seconds)

    @property
    def upload_dir(self) -> Path:
        """The folder of uploads that are being received and checked."""
        return self.data_dir / "uploads"

    @property
    def wakeup_dir(self) -> Path:
        """The folder of the sockets by which gateways and trainers of this machine wake each other."""
        return self.data_dir / "wakeups"

    @property
    def usage_dir(self) -> Path:
        """The folder of usage records until the database has them. Shared by the workers of this machine."""
        return self.data_dir / "usage"


def check_origins(origins: Sequence[str]) -> None:
    """Raise ValueError unless these are origins as browsers send them, or "*" alone."""
    for origin in origins:
        if origin == "*" and len(origins) > 1:
            raise ValueError("cors_origins must be origins or '*', not both")
        default_port = origin.endswith(":443" if origin.startswith("https:") else ":80")
        if origin != "*" and (not _ORIGIN.fullmatch(origin) or default_port):
            form = "scheme://host or scheme://host:port, in lower case, without a path and without the default port"
            raise ValueError(f"cors_origins must be '*' or origins of the form {form}, got {origin!r}")


MIN_RETENTION_DAYS = 7  # a spooled record that arrived after its row was purged would count twice
