"""Names of models that jobs create."""

import pytest

from loragate.adapter_store.names import check_adapter_name, check_alias_name
from loragate.finetune.jobs.model_name import TunedAlias, checkpoint_alias, parse_tuned_name, tuned_name

JOB = "ftjob-abcdefghijklmnop12345678"


@pytest.mark.parametrize(
    ("base", "tenant", "suffix", "model", "adapter"),
    [
        ("org/base", "Acme & Co.", "poet", "ft:org/base:acme-co:poet:12345678", "poet-12345678"),
        ("base", "ü", None, "ft:base:tenant::12345678", "ft-12345678"),
        ("a:b", "x", "v1.2_b-", "ft:a-b:x:v1.2_b-:12345678", "v1.2_b--12345678"),
        ("b" * 300, "t" * 100, "s" * 64, f"ft:{'b' * 100}:{'t' * 32}:{'s' * 64}:12345678", f"{'s' * 55}-12345678"),
    ],
)
def test_a_name_and_its_parts(base: str, tenant: str, suffix: str | None, model: str, adapter: str) -> None:
    name = tuned_name(base, tenant, suffix, JOB)
    assert (name.model, name.adapter) == (model, adapter)
    assert check_adapter_name(name.adapter, base_model=base) == name.adapter
    assert parse_tuned_name(name.model) == TunedAlias(adapter, "trained")
    assert parse_tuned_name(name.checkpoint(70)) == TunedAlias(adapter, checkpoint_alias(70))
    assert check_alias_name(checkpoint_alias(70)) == "ckpt-step-70"
    assert len(name.checkpoint(10**8)) <= 255, "what the database's column holds"


@pytest.mark.parametrize(
    "model",
    [
        "ft",
        "poet",
        "ft:base:acme:poet",
        "ft:base:acme:poet:1234567",
        "ft:base:acme:poet:12345678:",
        "ft:base:acme:poet:12345678:ckpt-step-0",
        "ft:base:acme:poet:12345678:ckpt-step-",
        "ft:base:acme:-poet:12345678",
        "ft:base:acme:po et:12345678",
        "ft::acme:poet:12345678",
        "ft:b\0:acme:poet:12345678",
        "ft:base::poet:12345678",
        "ft:base:acme:poet:12345678\n",
        f"ft:base:acme:{'s' * 65}:12345678",
    ],
)
def test_invalid_names(model: str) -> None:
    assert parse_tuned_name(model) is None
