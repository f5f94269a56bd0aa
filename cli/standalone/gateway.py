"""What `loragate gateway` does around the gateway itself."""

import asyncio

from loragate.cli.refusal import BAD_SETTING, Refusal
from loragate.cli.settings.model import DEFAULT_ENGINE_ADDRESS, Settings
from loragate.cli.supervisor.notifications import Announcements
from loragate.cli.supervisor.preparation import make_data_dir, prepare_store, secret_key
from loragate.gateway.config.gateway import GatewayConfig


def prepare(settings: Settings) -> None:
    """Without a supervisor: the data directory, the schema and the admin key are ours to see to."""
    make_data_dir(settings)
    new_key = asyncio.run(prepare_store(settings))
    if new_key is not None:
        Announcements().admin_key(new_key)


def gateway_config(settings: Settings, grpc_listen: str) -> GatewayConfig:
    """What the gateway is started with."""
    try:
        return GatewayConfig(
            database_url=settings.effective_database_url,
            blob_url=settings.effective_blob_url,
            secret_key=secret_key(settings),
            engine_target=settings.engine_target or DEFAULT_ENGINE_ADDRESS,
            data_dir=settings.data_dir,
            grpc_listen=grpc_listen,
            redis_url=settings.redis_url,
            drain_seconds=settings.drain_seconds,
            workers=settings.workers,
            sharers=settings.replicas * settings.workers,
            default_limits=settings.limits.of_tenants,
            imports=settings.imports.config(),
            first_token_deadline_seconds=settings.first_token_deadline_seconds,
            max_queue_seconds=settings.max_queue_seconds,
            upload_stall_seconds=settings.upload_stall_seconds,
            min_upload_bytes_per_second=settings.min_upload_bytes_per_second,
            tool_parser=settings.tool_parser,
            oidc=settings.oidc.config(),
            tracing=settings.tracing.config(),
            prices=tuple(price.price() for price in settings.prices),
            currency=settings.currency,
            deleted_retention_hours=settings.deleted_retention_hours,
            usage_retention_days=settings.usage_retention_days,
        )
    except ValueError as error:
        raise Refusal(str(error), BAD_SETTING) from None
