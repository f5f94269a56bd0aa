"""The commands that the supervisor runs, each with only the settings that it needs."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pydantic import SecretStr

from loragate.cli.data_dir.preparation import engine_secrets
from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.errors import CliError
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import EngineSettings, Settings
from loragate.cli.supervisor import finetuning, panel, shared_metrics, trainer
from loragate.cli.supervisor.program import OptionalPart, Program, our_command
from loragate.engine.fleet.addresses import EngineAddress, engine_addresses

_ENGINE = ("log_format", "model", "data_dir", "engine", "engine_secret", "previous_engine_secrets")
_DEVICES = "CUDA_VISIBLE_DEVICES"
_GATEWAY = (
    "log_format",
    "access_log",
    "data_dir",
    "drain_seconds",
    "first_token_deadline_seconds",
    "max_queue_seconds",
    "max_tokenizing_bytes",
    "special_tokens_in_prompts",
    "prefix_cache_by_user",
    "upload_stall_seconds",
    "min_upload_bytes_per_second",
    "max_connections",
    "max_buffered_body_bytes",
    "max_changes_per_minute",
    "min_free_bytes",
    "upload_disk_share",
    "database_url",
    "redis_url",
    "redis_prefix",
    "workers",
    "replicas",
    "limits",
    "blob_url",
    "secret_key",
    "previous_secret_keys",
    "engine_target",
    "engine_targets",
    "engine_ca",
    "engine_client_cert",
    "engine_client_key",
    "engine_secret",
    "previous_engine_secrets",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "client_cert",
    "forwarded_allow_ips",
    "cors_origins",
    "tool_parser",
    "reasoning_parser",
    "reasoning_content",
    "merged_exports",
    "oidc",
    "tracing",
    "responses",
    "imports",
    "signatures",
    "prices",
    "currency",
    "batch_price_factor",
    "max_batch_concurrency",
    "deleted_retention_hours",
    "usage_retention_days",
    "audit_retention_days",
    "job_event_retention_days",
)


@dataclass(frozen=True)
class Programs:
    """Builds the programs from the settings and the held ports."""

    settings: Settings
    engine_target: str
    gateway_descriptor: int
    grpc_address: str
    panel_descriptor: int | None = None  # None: no panel
    more_engines: tuple[EngineAddress, ...] = ()  # of this server, beside the one at `engine_target`

    @property
    def own_engines(self) -> tuple[EngineAddress, ...]:
        """The engines that this server starts."""
        return engine_addresses(self.engine_target, self.more_engines)

    def engine(self, model: str) -> Program:
        """Return the first engine, on its private socket unless the settings name an address."""
        engine, chosen = self.settings.engine, self.settings.trainer
        shares = chosen.enabled and chosen.device != "cpu" and engine.backend != "vllm"  # the first engine's GPU
        if shares and not engine.trainer_bytes:
            engine = replace(engine, trainer_bytes=chosen.max_bytes + chosen.step_bytes)
        return self._engine(model, engine, self.own_engines[0])

    def other_engine(self, model: str, number: int) -> Program:
        """Return another engine of this server, with a cache of its own."""
        address, engine = self.own_engines[number], self.settings.engine
        folder = (engine.cache_dir or self.settings.data_dir / "engine-cache") / address.id
        return self._engine(model, replace(engine, cache_dir=folder), address)

    def _engine(self, model: str, engine: EngineSettings, address: EngineAddress) -> Program:
        engine = replace(engine, listen=address.target, advertise=None, id=None, certificate_name=None)
        count = len(self.own_engines)
        if count > 1 and engine.threads is None:
            engine = replace(engine, threads=max(1, len(os.sched_getaffinity(0)) // count))
        # The secret keys themselves open more than the engine needs.
        secret, *previous = (SecretStr(each) for each in engine_secrets(self.settings))
        secrets = {"engine_secret": secret, "previous_engine_secrets": tuple(previous)}
        chosen = self.settings.model_copy(update={"model": model, "engine": engine, **secrets})
        name = "engine" if count == 1 else f"engine {address.id}"
        devices = os.environ.get(_DEVICES, "").split(",")
        own_device = {_DEVICES: devices[self.own_engines.index(address)]} if 1 < count <= len(devices) else {}
        return Program(name, our_command("engine"), child_environment(chosen, _ENGINE) | own_device)

    def gateway(self) -> Program:
        """Return a gateway on the REST socket and the gRPC port that the supervisor holds."""
        chosen = self._with_engines()
        descriptor = str(self.gateway_descriptor)
        command = our_command("gateway", "--descriptor", descriptor, "--grpc-address", self.grpc_address)
        environment = child_environment(chosen, _GATEWAY) | shared_metrics.environment(self.settings)
        return Program("gateway", command, environment, (self.gateway_descriptor,))

    def optional(self, model: str, where: Addresses, notify: Callable[[str], None]) -> Iterator[OptionalPart]:
        """Yield the optional parts that are enabled and installed. `notify` receives those that are not installed."""
        worker = finetuning.part(self._with_engines(), model, notify)
        if worker is not None:
            yield worker
        runs = trainer.part(self._with_engines(), model)
        if runs is not None:
            yield runs
        if self.panel_descriptor is not None:
            yield panel.part(self.settings, self.panel_descriptor, where)

    def _with_engines(self) -> Settings:
        """Return the settings of those that need the engines: this server's own, then the named ones."""
        own = [f"{each.id}={each.target}" for each in self.more_engines]
        targets = (*own, *self.settings.engine_targets)
        return self.settings.model_copy(update={"engine_target": self.engine_target, "engine_targets": targets})

    def demo_model(self) -> str:
        """Return the folder of the demo's base model. Raise CliError if the package has none."""
        from loragate.demo import shipped_assets

        try:
            return str(shipped_assets().model_dir)
        except FileNotFoundError as error:
            raise CliError(str(error)) from None

    def demo_provision(self, base_url: str, admin_key: str) -> Program:
        """Return the command that creates the demo's tenants over HTTP."""
        chosen = self.settings.model_copy(update={"base_url": base_url, "admin_key": SecretStr(admin_key)})
        environment = child_environment(chosen, ("data_dir", "base_url", "admin_key", "tls_cert", "client_cert"))
        return Program("demo", our_command("demo", "provision"), environment)
