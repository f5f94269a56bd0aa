"""Every setting of loragate, parsed once from options, environment and file, then frozen."""

from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.signatures.config import SignatureConfig
from loragate.cli.settings.types import (
    NONE,
    AbsolutePath,
    AdminKey,
    EngineId,
    HttpUrl,
    HubUrl,
    Label,
    Limit,
    Names,
    Networks,
    Origins,
    Port,
    ReasoningParser,
    RedisUrl,
    Reporters,
    SecretKey,
    SecretKeys,
    ToolParser,
)
from loragate.engine.config import EngineConfig, EngineOptions
from loragate.engine.fleet.addresses import EngineAddress, engine_address
from loragate.engine.link_security import LinkTls
from loragate.engine.runtime.log_format import LogFormat
from loragate.engine.server_tls import TlsFiles
from loragate.finetune.config import MAX_NICENESS
from loragate.finetune.sandbox import SandboxMode
from loragate.gateway.config.gateway import MIN_RETENTION_DAYS
from loragate.gateway.config.imports import ImportConfig
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.config.prices import Price
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.config.tracing import TracingConfig

PREFIX = "LORAGATE_"
DEFAULT_FILE = Path("loragate.toml")
DEFAULT_ENGINE_ADDRESS = "127.0.0.1:50100"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings(EngineOptions):
    """`LORAGATE_ENGINE__<NAME>`, or `[engine]` in the file. The defaults of `listen` and `cache_dir` depend on other
    settings; so does `vllm_python`, with the backend vllm. The last three say how the engine is registered."""

    listen: str | None = None
    cache_dir: AbsolutePath | None = None
    vllm_python: AbsolutePath | None = None  # the Python of vLLM's environment, with the backend vllm
    advertise: str | None = None  # the address at which gateways reach it: the engine is registered under it
    id: EngineId | None = None
    certificate_name: str | None = None

    def config(self, model: str, data_dir: Path, **access: Any) -> EngineConfig:
        """Return the configuration that the engine process is started with. `access` has its secret and certificate."""
        options = {each.name: getattr(self, each.name) for each in fields(EngineOptions)}
        if self.model_id is None and not Path(model).expanduser().is_dir():
            options["model_id"] = model.partition("@")[0]  # without its revision
        return EngineConfig(
            model=model,
            listen=self.listen or DEFAULT_ENGINE_ADDRESS,
            cache_dir=self.cache_dir or data_dir / "engine-cache",
            **options,
            **access,
        )


class FinetuneSettings(BaseModel):
    """`LORAGATE_FINETUNE__<NAME>`, or `[finetune]` in the file: how jobs are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    threads: PositiveInt | None = None
    nice: Annotated[int, Field(ge=0, le=MAX_NICENESS)] = MAX_NICENESS
    memory_bytes: PositiveInt | None = None
    max_running_per_tenant: PositiveInt = 1
    quantum_seconds: PositiveFloat = 600.0
    stop_seconds: PositiveFloat = 15.0
    max_silence_seconds: Annotated[float, Field(ge=30)] = 300.0
    sandbox: SandboxMode = SandboxMode.AUTO
    workspace: AbsolutePath | None = None
    max_workspace_bytes: PositiveInt = 50 << 30
    report_to: Reporters = ()


class TrainerSettings(BaseModel):
    """`LORAGATE_TRAINER__<NAME>`, or `[trainer]` in the file: the trainer of the training API."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: PositiveInt | None = None
    max_bytes: PositiveInt = 4 << 30
    max_step_tokens: PositiveInt = 4096
    step_bytes: PositiveInt = 4 << 30
    max_rank: PositiveInt = 128
    checkpointing: bool = False
    snapshot_steps: PositiveInt = 16


@pydantic_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class ImportSettings(ImportConfig):
    """`LORAGATE_IMPORTS__<NAME>`, or `[imports]` in the file; the hub "none" is None.

    A pydantic dataclass, because only its lists are parsed as JSON when they come from the environment.
    """

    hub: HubUrl = ImportConfig().hub


@pydantic_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class SignatureSettings(SignatureConfig):
    """`LORAGATE_SIGNATURES__<NAME>`, or `[signatures]` in the file; see ImportSettings."""


class PanelSettings(BaseModel):
    """`LORAGATE_PANEL__<NAME>`, or `[panel]` in the file. `public_url` is the address that browsers use, if it differs
    from the one that the panel listens on; `gateway_url` is the HTTP API, by default the one on this machine, and
    `gateway_cert` the only certificate that it may show."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    gateway_url: HttpUrl | None = None
    gateway_cert: AbsolutePath | None = None
    public_url: HttpUrl | None = None
    hosts: Names = ()
    hsts_seconds: NonNegativeInt = 31_536_000
    idle_seconds: PositiveFloat = 3600.0
    session_seconds: PositiveFloat = 43_200.0
    max_connections: PositiveInt = 1000
    stall_seconds: PositiveFloat = 15.0


class LimitSettings(BaseModel):
    """`LORAGATE_LIMITS__<NAME>`, or `[limits]` in the file: the limits of tenants that are created without any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests_per_minute: Limit = 600_000
    tokens_per_minute: Limit = 100_000_000
    max_concurrency: Limit = "unlimited"
    tokens_per_day: Limit = "unlimited"
    tokens_per_month: Limit = "unlimited"
    max_adapters: Limit = "unlimited"
    max_storage_bytes: Limit = "unlimited"
    max_objects: Limit = 100_000
    max_adapter_rank: Limit = "unlimited"
    max_unfinished_jobs: Limit = 32
    max_job_training_tokens: Limit = "unlimited"
    max_job_training_seconds: Limit = "unlimited"
    training_tokens_per_minute: Limit = "unlimited"
    training_tokens_per_day: Limit = "unlimited"
    training_tokens_per_month: Limit = "unlimited"
    training_seconds_per_day: Limit = "unlimited"
    training_seconds_per_month: Limit = "unlimited"
    max_unfinished_batches: Limit = 32
    max_batch_lines: Limit = "unlimited"
    max_batch_bytes: Limit = "unlimited"
    batch_tokens_per_day: Limit = "unlimited"
    max_training_sessions: Limit = 32
    max_training_runs: Limit = 64
    max_stored_responses: Limit = 100_000

    @property
    def tenant_limits(self) -> TenantLimits:
        """Return the limits with None for unlimited."""
        given = self.model_dump()
        return TenantLimits(**{name: None if value == "unlimited" else value for name, value in given.items()})


class Settings(BaseSettings):
    """`LORAGATE_<NAME>`, or `<name>` in loragate.toml. `None` means that the value is chosen at start."""

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
    log_format: LogFormat = "auto"
    access_log: bool = False
    model: str | None = None
    demo: bool = False
    host: str = "127.0.0.1"
    port: Port = 8000
    grpc_port: Port = 50051
    panel_port: Port = 8001
    tls_cert: AbsolutePath | None = None
    tls_key: AbsolutePath | None = None
    tls_client_ca: AbsolutePath | None = None
    client_cert: AbsolutePath | None = None
    forwarded_allow_ips: Networks = ()
    cors_origins: Origins = ()
    data_dir: AbsolutePath = Field(default=Path(".loragate"), validate_default=True)
    workers: PositiveInt = 1
    replicas: PositiveInt = 1
    drain_seconds: NonNegativeFloat = 25.0
    first_token_deadline_seconds: PositiveFloat | None = None
    max_queue_seconds: PositiveFloat = 30.0
    max_tokenizing_bytes: PositiveInt = 64 << 20
    special_tokens_in_prompts: bool = True
    prefix_cache_by_user: bool = False
    max_changes_per_minute: PositiveInt | Literal["unlimited"] = 600
    upload_stall_seconds: PositiveFloat = 10.0
    min_upload_bytes_per_second: PositiveFloat = 10_000.0
    max_connections: PositiveInt = 16_384
    max_buffered_body_bytes: PositiveInt = 256 << 20
    min_free_bytes: NonNegativeInt = 1 << 30
    upload_disk_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    database_url: str | None = None
    redis_url: RedisUrl | None = None
    redis_prefix: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")] = "loragate"
    limits: LimitSettings = LimitSettings()
    blob_url: str | None = None
    blob_folder_is_shared: bool = False
    admin_key: AdminKey | None = None
    first_tenant: Label | None = None
    secret_key: SecretKey | None = None
    previous_secret_keys: SecretKeys = ()
    engine_target: str | None = None
    engine_targets: Names = ()
    engines: Annotated[int, Field(ge=1, le=64)] = 1
    engine_secret: SecretKey | None = None
    previous_engine_secrets: SecretKeys = ()
    engine_ca: AbsolutePath | None = None
    engine_client_cert: AbsolutePath | None = None
    engine_client_key: AbsolutePath | None = None
    tool_parser: ToolParser | None = None
    reasoning_parser: ReasoningParser | None = None
    reasoning_content: bool = False
    merged_exports: bool = False
    oidc: OidcConfig = OidcConfig()
    tracing: TracingConfig = TracingConfig()
    responses: ResponsesConfig = ResponsesConfig()
    imports: ImportSettings = ImportSettings()
    signatures: SignatureSettings = SignatureSettings()
    panel: PanelSettings = PanelSettings()
    prices: tuple[Price, ...] = ()
    batch_price_factor: Annotated[Decimal, Field(ge=0, le=1)] = Decimal("0.5")
    max_batch_concurrency: Annotated[int, Field(ge=0)] = 64
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    deleted_retention_hours: NonNegativeFloat = 168.0
    usage_retention_days: Annotated[int, Field(ge=MIN_RETENTION_DAYS)] | None = None
    audit_retention_days: PositiveInt | None = None
    job_event_retention_days: PositiveInt | None = None
    engine: EngineSettings = EngineSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    trainer: TrainerSettings = TrainerSettings()
    base_url: HttpUrl | None = None
    api_key: SecretStr | None = None

    @property
    def first_engine(self) -> str | None:
        """Return the address of a single engine; None if the setting "none" leaves it to the others, named or
        registered."""
        if self.engine_target is None:
            return None if self.engine_targets else DEFAULT_ENGINE_ADDRESS
        return None if self.engine_target == NONE else self.engine_target

    @property
    def more_engines(self) -> tuple[EngineAddress, ...]:
        """Return the other engines that are named. Raise ValueError."""
        return tuple(map(engine_address, self.engine_targets))

    @property
    def tls(self) -> TlsFiles | None:
        """Return the files of the ports' certificate, if there is one."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca, self.client_cert)

    @property
    def engine_tls(self) -> LinkTls | None:
        """Return the files for links to engines on other machines, if they are configured."""
        if self.engine_ca is None:
            return None
        return LinkTls(self.engine_ca, self.engine_client_cert, self.engine_client_key)

    @property
    def effective_database_url(self) -> str:
        """Return the configured database, else SQLite in the data directory."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir / 'loragate.db'}"

    @property
    def effective_blob_url(self) -> str:
        """Return the configured blob store, else a folder in the data directory."""
        return self.blob_url or (self.data_dir / "blobs").as_uri()

    @property
    def finetune_workspace(self) -> Path:
        """Return the configured training folder, else one in the data directory."""
        return self.finetune.workspace or self.data_dir / "finetune"

    @property
    def trainer_workspace(self) -> Path:
        """Return the trainer's folder."""
        return self.data_dir / "trainer"

    @property
    def wakeup_dir(self) -> Path:
        """Return the folder of the sockets by which gateways and trainers of this machine wake each other."""
        return self.data_dir / "wakeups"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: options, environment, file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
