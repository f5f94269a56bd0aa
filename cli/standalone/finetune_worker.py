"""The configuration of `loragate finetune-worker`, from the settings."""

import os
from dataclasses import replace
from importlib.util import find_spec

from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.signatures.policy import SignaturePolicy
from loragate.cli.data_dir.preparation import engine_secrets, make_data_dir, secret_keys
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.optional_dependencies import INSTALL_FINETUNE, missing_finetune_packages
from loragate.cli.settings.model import FinetuneSettings, Settings
from loragate.engine.fleet.addresses import check_addresses, engine_addresses
from loragate.finetune.config import MAX_NICENESS, ServiceConfig, TrainerPatience
from loragate.finetune.sandbox import Sandbox, SandboxUnavailable, find_sandbox
from loragate.finetune.training.protocol.trainer_settings import TrainerSettings


def service_config(settings: Settings, name: str | None) -> ServiceConfig:
    """Return the worker's configuration. Raise CliError."""
    if settings.model is None:
        raise CliError(
            "no model to train: give the engine's model as --model DIR_OR_HUB_ID (LORAGATE_MODEL)", BAD_SETTING
        )
    missing = missing_finetune_packages()
    if missing:
        raise CliError(f"training needs {', '.join(missing)}: {INSTALL_FINETUNE}", BAD_SETTING)
    unknown = [name for name in settings.finetune.report_to if find_spec(name) is None]
    if unknown:
        raise CliError(f"LORAGATE_FINETUNE__REPORT_TO: {', '.join(unknown)} is not installed", BAD_SETTING)
    make_data_dir(settings)
    chosen = settings.finetune
    try:
        more = settings.more_engines
        check_addresses(engine_addresses(settings.first_engine, more), settings.engine_tls)
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    keys = secret_keys(settings)
    engine_secret, *previous_engine_secrets = engine_secrets(settings)
    return ServiceConfig(
        name=name or f"worker-{random_base62(12)}",
        model=settings.model,
        database_url=settings.effective_database_url,
        blob_url=settings.effective_blob_url,
        secret_key=keys.primary,
        previous_secret_keys=keys.previous,
        engine_target=settings.first_engine,
        engines=more,
        engine_secret=engine_secret,
        previous_engine_secrets=tuple(previous_engine_secrets),
        engine_tls=settings.engine_tls,
        workspace=settings.finetune_workspace,
        trainer=_trainer_settings(chosen),
        nice=chosen.nice,
        max_jobs_per_tenant=chosen.max_running_per_tenant,
        max_workspace_bytes=chosen.max_workspace_bytes,
        patience=TrainerPatience(stop_seconds=chosen.stop_seconds, silence_seconds=chosen.max_silence_seconds),
        quantum_seconds=chosen.quantum_seconds,
        sandbox=_sandbox(chosen),
        training_prices={price.tenant: price.training_rate for price in settings.prices if price.adapter is None},
        min_free_bytes=settings.min_free_bytes,
        # It publishes only what it has trained, so it needs no signer's keys.
        signatures=SignaturePolicy(settings.signatures.require, {}, settings.signatures.trust_fine_tuning),
    )


def _sandbox(chosen: FinetuneSettings) -> Sandbox | None:
    try:
        return find_sandbox(chosen.sandbox, chosen.device, chosen.report_to)
    except SandboxUnavailable as error:
        message = f"LORAGATE_FINETUNE__SANDBOX is required, but training cannot run in a sandbox: {error}"
        raise CliError(message, BAD_SETTING) from None


def _trainer_settings(chosen: FinetuneSettings) -> TrainerSettings:
    settings = TrainerSettings(
        threads=chosen.threads or len(os.sched_getaffinity(0)),
        device=chosen.device,
        memory_bytes=chosen.memory_bytes,
        report_to=chosen.report_to,
    )
    return replace(settings, idle_priority=chosen.nice == MAX_NICENESS and not settings.dedicated_device)
