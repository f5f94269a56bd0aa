"""Every setting of loragate, parsed once from options, environment and file, then frozen."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from loragate.adapter_store.auth.credentials import check_admin_key
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.limits import MAX_LIMIT, TenantLimits
from loragate.engine.config import EngineConfig
from loragate.engine.runtime.log_format import LogFormat
from loragate.finetune.config import MAX_NICENESS
from loragate.gateway.config.gateway import MIN_RETENTION_DAYS
from loragate.gateway.config.imports import BucketGrant, ImportConfig
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.config.prices import Price
from loragate.gateway.config.tracing import TracingConfig
from loragate.gateway.tools.formats.detection import FORMATS

PREFIX = "LORAGATE_"
DEFAULT_FILE = Path("loragate.toml")
DEFAULT_ENGINE_ADDRESS = "127.0.0.1:50100"


def _admin_key(secret: SecretStr) -> SecretStr:
    try:
        check_admin_key(secret.get_secret_value())
    except Invalid as error:
        raise ValueError(error.message) from None
    return secret


def _secret_key(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < 16:
        raise ValueError("needs at least 16 characters")
    return secret


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("must be of the form http://host:port")
    return url


def _redis_url(url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must be of the form redis://host:port, rediss://host:port or unix:///path")
    return url


def _tool_parser(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"must be one of {', '.join(FORMATS)}")
    return name


def _listed(given: Any) -> Any:
    """Of a text, as in the environment: names with commas between them, or JSON."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):
        return json.loads(given)
    return [name.strip() for name in given.split(",") if name.strip()]


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


Port = Annotated[int, Field(ge=0, le=65535)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
Limit = Annotated[NonNegativeInt, Field(le=MAX_LIMIT)] | Literal["unlimited"]
ToolParser = Annotated[str, AfterValidator(_tool_parser)]
Reporter = Literal["tensorboard", "mlflow", "wandb"]
Reporters = Annotated[tuple[Reporter, ...], NoDecode, BeforeValidator(_listed)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
AdminKey = Annotated[SecretStr, AfterValidator(_admin_key)]
SecretKey = Annotated[SecretStr, AfterValidator(_secret_key)]


class EngineSettings(BaseModel):
    """`LORAGATE_ENGINE__<NAME>`, or `[engine]` in the file: the fields of `EngineConfig`, except the model."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    listen: str | None = None
    cache_dir: AbsolutePath | None = None
    model_id: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["none", "nf4", "int8"] = "none"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    adapter_slots: PositiveInt = 16
    adapter_device_bytes: PositiveInt | None = None
    adapter_host_bytes: PositiveInt | None = None
    adapter_disk_bytes: PositiveInt | None = None
    max_model_len: PositiveInt | None = None
    kv_cache_tokens: PositiveInt | None = None
    kv_cache_dtype: Literal["auto", "int8", "fp8"] = "auto"
    max_batch_tokens: PositiveInt = 512
    max_batch_size: PositiveInt = 64
    cuda_graphs: bool = True
    async_scheduling: Literal["auto", "on", "off"] = "auto"
    max_step_ms: PositiveFloat | None = 100.0
    max_waiting: PositiveInt = 4096
    max_waiting_per_tenant: PositiveInt = 1024
    block_size: PositiveInt = 16
    prefix_cache: bool = True
    kv_host_bytes: NonNegativeInt | None = None
    max_lora_rank: PositiveInt = 256
    max_full_weight_bytes: PositiveInt | None = None
    threads: PositiveInt | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "EngineSettings":
        self.config(model="any", data_dir=Path())
        return self

    def config(self, model: str, data_dir: Path) -> EngineConfig:
        """What the engine process is started with."""
        defaults: dict[str, Any] = {
            "listen": DEFAULT_ENGINE_ADDRESS,
            "cache_dir": data_dir / "engine-cache",
            "model_id": None if Path(model).expanduser().is_dir() else model,
        }
        return EngineConfig(model=model, **(defaults | self.model_dump(exclude_none=True)))


class FinetuneSettings(BaseModel):
    """`LORAGATE_FINETUNE__<NAME>`, or `[finetune]` in the file: how jobs are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    threads: PositiveInt | None = None
    nice: Annotated[int, Field(ge=0, le=MAX_NICENESS)] = MAX_NICENESS
    memory_bytes: PositiveInt | None = None
    max_running_per_tenant: PositiveInt = 1
    workspace: AbsolutePath | None = None
    max_workspace_bytes: PositiveInt = 50 << 30
    report_to: Reporters = ()


class OidcSettings(BaseModel):
    """`LORAGATE_OIDC__<NAME>`, or `[oidc]` in the file: the fields of `OidcConfig`. Without an issuer it is off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str | None = None
    audience: str = ""
    admin_claim: str = "groups"
    admin_value: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> "OidcSettings":
        self.config()
        return self

    def config(self) -> OidcConfig | None:
        """What the gateway is started with."""
        if self.issuer is None:
            return None
        return OidcConfig(self.issuer, self.audience, self.admin_value, self.admin_claim)


class TracingSettings(BaseModel):
    """`LORAGATE_TRACING__<NAME>`, or `[tracing]` in the file: the fields of `TracingConfig`. Without an endpoint it is
    off."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    endpoint: str | None = None
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _fits_together(self) -> "TracingSettings":
        self.config()
        return self

    def config(self) -> TracingConfig | None:
        """What the gateway is started with."""
        return None if self.endpoint is None else TracingConfig(self.endpoint, self.sample_ratio)


class BucketSettings(BaseModel):
    """One of `[[imports.buckets]]`: everything below `path`, for these tenants by id; without any, for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    tenants: tuple[str, ...] | None = None


class ImportSettings(BaseModel):
    """`LORAGATE_IMPORTS__<NAME>`, or `[imports]` in the file: the fields of `ImportConfig`. The hub "none" is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub: str = "https://huggingface.co"
    hosts: tuple[str, ...] = ImportConfig().hosts
    buckets: tuple[BucketSettings, ...] = ()
    max_concurrent: PositiveInt = 2

    @model_validator(mode="after")
    def _fits_together(self) -> "ImportSettings":
        self.config()
        return self

    def config(self) -> ImportConfig:
        """What the gateway is started with."""
        grants = (
            BucketGrant(bucket.path, None if bucket.tenants is None else frozenset(bucket.tenants))
            for bucket in self.buckets
        )
        return ImportConfig(None if self.hub == "none" else self.hub, self.hosts, tuple(grants), self.max_concurrent)


class PriceSettings(BaseModel):
    """One of `[[prices]]` in the file, or of `LORAGATE_PRICES`' JSON list: the fields of `Price`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Decimal = Decimal(0)
    completion: Decimal = Decimal(0)
    cached: Decimal | None = None
    tenant: str | None = None
    adapter: str | None = None

    @model_validator(mode="after")
    def _is_a_price(self) -> "PriceSettings":
        self.price()
        return self

    def price(self) -> Price:
        """As the gateway reckons with it."""
        return Price(**dict(self))


class PanelSettings(BaseModel):
    """`LORAGATE_PANEL__<NAME>`, or `[panel]` in the file. `public_url` is what browsers reach it by, where that is not
    the address that it listens on; `gateway_url` is the HTTP API, by default the one on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    gateway_url: HttpUrl | None = None
    public_url: HttpUrl | None = None
    idle_seconds: PositiveFloat = 3600.0
    session_seconds: PositiveFloat = 43_200.0


class LimitSettings(BaseModel):
    """`LORAGATE_LIMITS__<NAME>`, or `[limits]` in the file: the limits of tenants that are made without."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: Limit = 600_000
    tokens_per_minute: Limit = 100_000_000
    max_concurrency: Limit = "unlimited"
    tokens_per_day: Limit = "unlimited"
    tokens_per_month: Limit = "unlimited"
    max_adapters: Limit = "unlimited"
    max_storage_bytes: Limit = "unlimited"
    max_adapter_rank: Limit = "unlimited"
    max_unfinished_jobs: Limit = 32

    @property
    def of_tenants(self) -> TenantLimits:
        """What is not limited is None there."""
        given = self.model_dump()
        return TenantLimits(**{name: None if value == "unlimited" else value for name, value in given.items()})


class Settings(BaseSettings):
    """`LORAGATE_<NAME>`, or `<name>` in loragate.toml. `None` means: chosen at start."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        nested_model_default_partial_update=True,
        hide_input_in_errors=True,
    )

    config: AbsolutePath | None = None
    log_format: LogFormat = "text"
    model: str | None = None
    demo: bool = False
    host: str = "127.0.0.1"
    port: Port = 8000
    grpc_port: Port = 50051
    panel_port: Port = 8001
    data_dir: AbsolutePath = Field(default=Path(".loragate"), validate_default=True)
    workers: PositiveInt = 1
    replicas: PositiveInt = 1
    drain_seconds: NonNegativeFloat = 25.0
    first_token_deadline_seconds: PositiveFloat | None = None
    max_queue_seconds: PositiveFloat = 30.0
    upload_stall_seconds: PositiveFloat = 10.0
    min_upload_bytes_per_second: PositiveFloat = 10_000.0
    database_url: str | None = None
    redis_url: RedisUrl | None = None
    limits: LimitSettings = LimitSettings()
    blob_url: str | None = None
    admin_key: AdminKey | None = None
    secret_key: SecretKey | None = None
    engine_target: str | None = None
    tool_parser: ToolParser | None = None
    oidc: OidcSettings = OidcSettings()
    tracing: TracingSettings = TracingSettings()
    imports: ImportSettings = ImportSettings()
    panel: PanelSettings = PanelSettings()
    prices: tuple[PriceSettings, ...] = ()
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    deleted_retention_hours: NonNegativeFloat = 168.0
    usage_retention_days: Annotated[int, Field(ge=MIN_RETENTION_DAYS)] | None = None
    engine: EngineSettings = EngineSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    base_url: HttpUrl | None = None
    api_key: SecretStr | None = None

    @property
    def effective_database_url(self) -> str:
        """The configured database, else SQLite in the data directory."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'loragate.db'}"

    @property
    def effective_blob_url(self) -> str:
        """The configured blob store, else a folder in the data directory."""
        return self.blob_url or (self.data_dir / "blobs").as_uri()

    @property
    def finetune_workspace(self) -> Path:
        """The configured folder for training, else one in the data directory."""
        return self.finetune.workspace or self.data_dir / "finetune"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Option, environment, file; what none of them names keeps its default."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
