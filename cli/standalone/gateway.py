"""The preparation and configuration of `loragate gateway`, from the settings."""

import asyncio

from loragate.adapter_store.signatures.policy import load_policy
from loragate.cli.data_dir.preparation import (
    check_replicas,
    engine_secrets,
    make_data_dir,
    prepare_store,
    print_admin_key,
    secret_keys,
)
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import Settings
from loragate.gateway.config.gateway import GatewayConfig


def prepare(settings: Settings) -> None:
    """Prepare the data directory, the schema and the admin key, when there is no supervisor to do so."""
    check_replicas(settings)
    make_data_dir(settings)
    new_key = asyncio.run(prepare_store(settings))
    if new_key is not None:
        print_admin_key(new_key)


def gateway_config(settings: Settings, grpc_listen: str) -> GatewayConfig:
    """Return the gateway's configuration. Raise CliError."""
    keys = secret_keys(settings)
    engine_secret, *previous_engine_secrets = engine_secrets(settings)
    try:
        return GatewayConfig(
            database_url=settings.effective_database_url,
            blob_url=settings.effective_blob_url,
            secret_key=keys.primary,
            previous_secret_keys=keys.previous,
            engine_target=settings.first_engine,
            engines=settings.more_engines,
            engine_secret=engine_secret,
            previous_engine_secrets=tuple(previous_engine_secrets),
            engine_tls=settings.engine_tls,
            tls=settings.tls,
            trusted_proxies=settings.forwarded_allow_ips,
            cors_origins=settings.cors_origins,
            data_dir=settings.data_dir,
            grpc_listen=grpc_listen,
            redis_url=settings.redis_url,
            redis_prefix=settings.redis_prefix,
            drain_seconds=settings.drain_seconds,
            workers=settings.workers,
            sharers=settings.replicas * settings.workers,
            default_limits=settings.limits.tenant_limits,
            responses=settings.responses,
            imports=settings.imports,
            signatures=load_policy(settings.signatures),
            first_token_deadline_seconds=settings.first_token_deadline_seconds,
            max_queue_seconds=settings.max_queue_seconds,
            max_tokenizing_bytes=settings.max_tokenizing_bytes,
            special_tokens_in_prompts=settings.special_tokens_in_prompts,
            prefix_cache_by_user=settings.prefix_cache_by_user,
            upload_stall_seconds=settings.upload_stall_seconds,
            min_upload_bytes_per_second=settings.min_upload_bytes_per_second,
            max_connections=settings.max_connections,
            max_buffered_body_bytes=settings.max_buffered_body_bytes,
            max_changes_per_minute=(
                None if settings.max_changes_per_minute == "unlimited" else settings.max_changes_per_minute
            ),
            min_free_bytes=settings.min_free_bytes,
            upload_disk_share=settings.upload_disk_share,
            tool_parser=settings.tool_parser,
            reasoning_parser=settings.reasoning_parser,
            reasoning_content=settings.reasoning_content,
            merged_exports=settings.merged_exports,
            oidc=settings.oidc if settings.oidc.issuer else None,
            tracing=settings.tracing if settings.tracing.endpoint else None,
            prices=settings.prices,
            currency=settings.currency,
            batch_price_factor=settings.batch_price_factor,
            max_batch_concurrency=settings.max_batch_concurrency,
            deleted_retention_hours=settings.deleted_retention_hours,
            usage_retention_days=settings.usage_retention_days,
            audit_retention_days=settings.audit_retention_days,
            job_event_retention_days=settings.job_event_retention_days,
        )
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
