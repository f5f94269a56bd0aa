"""The configuration of `loragate trainer`, from the settings."""

from loragate.adapter_store.ids import random_base62
from loragate.adapter_store.signatures.policy import SignaturePolicy
from loragate.cli.data_dir.preparation import engine_secrets, make_data_dir, secret_keys
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import Settings
from loragate.engine.fleet.addresses import check_addresses, engine_addresses
from loragate.trainer.worker.config import TrainerConfig


def trainer_config(settings: Settings, name: str | None) -> TrainerConfig:
    """Return the trainer's configuration. Raise CliError."""
    if settings.model is None:
        raise CliError(
            "no model to train: give the engine's model as --model DIR_OR_HUB_ID (LORAGATE_MODEL)", BAD_SETTING
        )
    make_data_dir(settings)
    try:
        more = settings.more_engines
        check_addresses(engine_addresses(settings.first_engine, more), settings.engine_tls)
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    keys, chosen = secret_keys(settings), settings.trainer
    engine_secret, *previous_engine_secrets = engine_secrets(settings)
    return TrainerConfig(
        name=name or f"trainer-{random_base62(12)}",
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
        workspace=settings.trainer_workspace,
        wakeup_dir=settings.wakeup_dir,
        device=chosen.device,
        dtype=chosen.dtype,
        threads=chosen.threads,
        max_bytes=chosen.max_bytes,
        max_step_tokens=chosen.max_step_tokens,
        step_bytes=chosen.step_bytes,
        max_rank=chosen.max_rank,
        checkpointing=chosen.checkpointing,
        snapshot_steps=chosen.snapshot_steps,
        training_prices={price.tenant: price.training_rate for price in settings.prices if price.adapter is None},
        min_free_bytes=settings.min_free_bytes,
        # It publishes only what it has trained, so it needs no signer's keys.
        signatures=SignaturePolicy(settings.signatures.require, {}, settings.signatures.trust_fine_tuning),
    )
