import ast
import inspect
from dataclasses import FrozenInstanceError, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from pydantic import ValidationError

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.signatures.config import Require, SignerConfig
from loragate.cli.data_dir.preparation import engine_secrets, secret_keys
from loragate.cli.errors import CliError
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.load import load
from loragate.cli.settings.model import EngineSettings, Settings
from loragate.cli.settings.names import environment_names
from loragate.cli.standalone.gateway import gateway_config
from loragate.cli.supervisor import child_commands
from loragate.cli.supervisor.child_commands import Programs
from loragate.engine.config import EngineConfig
from loragate.gateway.config.prices import Price


def write_file(text: str) -> None:
    Path("loragate.toml").write_text(text)


def rejection(**options: Any) -> str:
    with pytest.raises(CliError) as caught:
        load(**options)
    assert caught.value.status == 2
    return caught.value.message


def test_option_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().port == 8000
    write_file("port = 1001")
    assert load().port == 1001
    monkeypatch.setenv("LORAGATE_PORT", "1002")
    assert load().port == 1002
    assert load(port=1003).port == 1003


def test_nested_settings_merge_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file('[engine]\ndtype = "bfloat16"\nadapter_slots = 3\nblock_size = 8')
    monkeypatch.setenv("LORAGATE_ENGINE__ADAPTER_SLOTS", "5")
    engine = load(engine={"block_size": 4}).engine
    assert (engine.dtype, engine.adapter_slots, engine.block_size) == ("bfloat16", 5, 4)


def test_a_file_can_be_named_by_option_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file("port = 1001")
    Path("other.toml").write_text("port = 1004")
    assert load(config=Path("other.toml")).port == 1004
    monkeypatch.setenv("LORAGATE_CONFIG", "other.toml")
    assert load().port == 1004
    assert "nowhere.toml" in rejection(config=Path("nowhere.toml"))


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_REDIS_URL", "")
    monkeypatch.setenv("LORAGATE_PORT", "")
    assert load().redis_url is None
    assert load().port == 8000


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LORAGATE_PROT", "LORAGATE_PORT"),
        ("LORAGATE_ENGINE__DTYP", "LORAGATE_ENGINE__DTYPE"),
        ("LORAGATE_ENGINE__DTYPE__X", ""),
        ("loragate_unheard_of", ""),
    ],
)
def test_unknown_variables_are_named(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    monkeypatch.setenv(name, "1")
    message = rejection()
    assert name in message
    assert meant in message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "unknown setting prot in loragate.toml; did you mean port?"),
        ("[engine]\ndtyp = 'auto'", "unknown setting engine.dtyp in loragate.toml; did you mean engine.dtype?"),
        ("port = 70000", "port in loragate.toml: "),
        ("[engine]\ndtype = 'float8'", "engine.dtype in loragate.toml: "),
        ("engine = 3", "engine in loragate.toml: "),
        ("port = ", "loragate.toml is not valid TOML"),
    ],
)
def test_bad_files_are_rejected_by_name(text: str, named: str) -> None:
    write_file(text)
    assert named in rejection()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LORAGATE_PORT", "x"),
        ("LORAGATE_PORT", "-1"),
        ("LORAGATE_WORKERS", "0"),
        ("LORAGATE_DRAIN_SECONDS", "-1"),
        ("LORAGATE_DEMO", "perhaps"),
        ("LORAGATE_ENGINE", "x"),
        ("LORAGATE_ENGINE__ADAPTER_SLOTS", "0"),
        ("LORAGATE_ENGINE__DTYPE", "float8"),
        ("LORAGATE_ADMIN_KEY", "only-23-characters-long"),
        ("LORAGATE_ADMIN_KEY", "a control character \x07 in here"),
        ("LORAGATE_SECRET_KEY", "short"),
        ("LORAGATE_TOOL_PARSER", "morse"),
        ("LORAGATE_MAX_QUEUE_SECONDS", "0"),
        ("LORAGATE_MAX_QUEUE_SECONDS", "nan"),
        ("LORAGATE_LOG_FORMAT", "xml"),
        ("LORAGATE_TRACING__ENDPOINT", "collector:4318"),
        ("LORAGATE_TRACING__SAMPLE_RATIO", "2"),
    ],
)
def test_bad_values_are_rejected_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    message = rejection()
    assert name.removeprefix("LORAGATE_").lower().split("__")[0] in message.lower()


def test_a_bad_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", "hunter2")
    assert "hunter2" not in rejection()


def test_an_admin_key_may_be_any_24_printable_characters() -> None:
    key = "24 printable characters!"
    assert load(admin_key=key).admin_key.get_secret_value() == key  # type: ignore[union-attr]


def test_engine_rules_across_fields_are_checked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_ENGINE__MAX_BATCH_SIZE", "1000")
    assert "engine.max_batch_size (1000) must not exceed" in rejection()


def test_batch_invariance_excludes_matmuls_whose_sums_depend_on_the_number_of_rows() -> None:
    engine = {"lora_gemm_rows": 256}
    assert load(engine=engine).engine.lora_gemm_rows == 256
    assert "engine.lora_gemm_rows must be 0 with engine.batch_invariant on" in rejection(
        engine=engine | {"batch_invariant": "on"}
    )


def test_a_dependent_launch_and_a_side_stream_exclude_each_other() -> None:
    engine = {"lora_dependent_launch": True, "lora_side_stream": False}
    assert load(engine=engine).engine.lora_dependent_launch
    assert "exclude each other" in rejection(engine=engine | {"lora_side_stream": True})


def test_an_option_is_named_as_it_was_typed() -> None:
    assert rejection(port=99999).startswith("--port: ")
    assert rejection(drain_seconds=-1.0).startswith("--drain-seconds: ")


def test_engine_settings_mirror_the_engine() -> None:
    mirrored = {
        "model",
        "secret",
        "previous_secrets",
        "tls_cert",
        "tls_key",
        "tls_client_ca",
        *(field.name for field in fields(EngineSettings)),
    }
    of_the_start = {"advertise", "id", "certificate_name", "vllm_python"}
    assert mirrored - of_the_start == {field.name for field in fields(EngineConfig)}
    ours = EngineSettings().config("model", Path("data"))
    theirs = EngineConfig("model", ours.listen, ours.cache_dir, model_id="model")
    assert ours == theirs


def test_a_hub_id_names_the_model_and_a_folder_does_not(tmp_path: Path) -> None:
    assert EngineSettings().config("Qwen/Qwen3-0.6B", tmp_path).model_id == "Qwen/Qwen3-0.6B"
    assert EngineSettings().config(str(tmp_path), tmp_path).model_id is None
    assert EngineSettings(model_id="mine").config(str(tmp_path), tmp_path).model_id == "mine"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load().port = 1
    with pytest.raises(FrozenInstanceError):
        load().engine.dtype = "float32"


def test_every_name_of_the_contract_exists() -> None:
    names = set(environment_names(Settings))
    contract = (
        "MODEL DEMO HOST PORT GRPC_PORT PANEL_PORT DATA_DIR WORKERS CONFIG DRAIN_SECONDS DATABASE_URL REDIS_URL "
        "BLOB_URL ADMIN_KEY SECRET_KEY ENGINE__DTYPE ENGINE__ADAPTER_SLOTS BASE_URL API_KEY"
    )
    assert {f"LORAGATE_{name}" for name in contract.split()} <= names


def test_only_settings_reach_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_ADMIN_KEY", "k" * 24)
    monkeypatch.setenv("LORAGATE_ENGINE__ADAPTER_SLOTS", "7")
    write_file("port = 1001")
    settings = load(model="some/model", data_dir=Path("here"))
    environment = child_environment(settings, ("model", "data_dir", "engine"))
    for name in ("LORAGATE_ADMIN_KEY", "LORAGATE_PORT"):
        assert name not in environment

    monkeypatch.delenv("LORAGATE_ADMIN_KEY")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    inherited = load()
    assert inherited.port == 8000, "a child never reads the file again"
    assert inherited.engine == settings.engine
    assert (inherited.model, inherited.data_dir) == ("some/model", Path("here").absolute())


def test_the_queue_bound_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_MAX_QUEUE_SECONDS", "inf")
    assert load().max_queue_seconds == float("inf")


def test_the_traces_endpoint_reaches_only_the_gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORAGATE_TRACING__ENDPOINT", "http://collector:4318")
    monkeypatch.setenv("LORAGATE_LOG_FORMAT", "json")
    programs = Programs(load(data_dir=tmp_path), "unix:/engine.sock", 3, "127.0.0.1:50051")
    gateway, engine = programs.gateway().environment, programs.engine("model").environment
    assert gateway["LORAGATE_TRACING__ENDPOINT"] == "http://collector:4318"
    assert "LORAGATE_TRACING__ENDPOINT" not in engine
    assert gateway["LORAGATE_LOG_FORMAT"] == engine["LORAGATE_LOG_FORMAT"] == "json"


def test_all_settings_of_a_gateway_reach_it() -> None:
    names = {node.attr for node in ast.walk(ast.parse(inspect.getsource(gateway_config))) if is_setting(node)}
    assert len(names) > 30
    assert names <= set(child_commands._GATEWAY)


def is_setting(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether the expression is `settings.<a field>`."""
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings"
    return named and node.attr in Settings.model_fields


def test_secrets_reach_the_child_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(secret_key="s" * 32)
    assert child_environment(settings, ("secret_key",))["LORAGATE_SECRET_KEY"] == "s" * 32


def test_the_engine_gets_a_secret_of_its_own(tmp_path: Path) -> None:
    """Gateways derive the same one. The secret key, which opens more, stays with them."""
    settings = load(data_dir=tmp_path, secret_key="s" * 32)
    engine = Programs(settings, "unix:/engine.sock", 3, "127.0.0.1:50051").engine("model").environment
    assert engine["LORAGATE_ENGINE_SECRET"] == gateway_config(settings, "127.0.0.1:0").engine_secret
    assert "s" * 32 not in engine.values()
    assert gateway_config(load(data_dir=tmp_path, engine_secret="t" * 16), "127.0.0.1:0").engine_secret == "t" * 16


def test_previous_secrets_reach_all_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORAGATE_SECRET_KEY", "n" * 32)
    monkeypatch.setenv("LORAGATE_PREVIOUS_SECRET_KEYS", f"{'o' * 32}, {'p' * 32}")
    settings = load(data_dir=tmp_path)
    programs = Programs(settings, "unix:/engine.sock", 3, "127.0.0.1:50051")
    assert "o" * 32 not in repr(settings)
    before = load(data_dir=tmp_path, secret_key="o" * 32, previous_secret_keys=[])
    for program in (programs.gateway(), programs.engine("model")):
        with monkeypatch.context() as child:
            for name, value in program.environment.items():
                child.setenv(name, value)
            inherited = load()
        if program.name == "gateway":
            assert secret_keys(inherited) == SecretKeys(b"n" * 32, (b"o" * 32, b"p" * 32))
            assert gateway_config(inherited, "127.0.0.1:0").previous_secret_keys == (b"o" * 32, b"p" * 32)
        assert engine_secrets(inherited) == engine_secrets(settings)
        assert engine_secrets(inherited)[1] == engine_secrets(before)[0]
    assert "o" * 32 not in str(programs.engine("model").environment)


def test_an_own_engine_secret_is_rotated_by_itself(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path, engine_secret="n" * 16, previous_engine_secrets=["o" * 16])
    assert engine_secrets(settings) == ("n" * 16, "o" * 16)
    assert engine_secrets(load(data_dir=tmp_path, previous_engine_secrets=["o" * 16]))[1:] == ("o" * 16,)


def test_a_short_previous_secret_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_PREVIOUS_SECRET_KEYS", f"{'o' * 32},short")
    with pytest.raises(CliError, match=r"^LORAGATE_PREVIOUS_SECRET_KEYS: needs at least 16 characters$"):
        load()


@pytest.mark.parametrize(
    ("target", "files", "missing"),
    [
        ("unix:/run/engine.sock", {}, None),
        ("127.0.0.1:50100", {}, None),
        ("[::1]:50100", {}, None),
        ("engine:50100", {}, "LORAGATE_ENGINE_CA"),
        ("engine:50100", {"engine_ca": "ca.pem"}, "LORAGATE_ENGINE_CLIENT_CERT"),
        ("engine:50100", {"engine_ca": "ca.pem", "engine_client_cert": "c.pem", "engine_client_key": "c.key"}, None),
    ],
)
def test_an_engine_on_another_machine_needs_tls_on_both_sides(
    tmp_path: Path, target: str, files: dict[str, str], missing: str | None
) -> None:
    settings = load(data_dir=tmp_path, engine_target=target, **files)
    if missing is None:
        assert gateway_config(settings, "127.0.0.1:0").engine_target == target
        return
    with pytest.raises(CliError, match=missing):
        gateway_config(settings, "127.0.0.1:0")


PRICES = """
currency = "EUR"
usage_retention_days = 90

[[prices]]
prompt = "0.15"
completion = 0.6

[[prices]]
tenant = "tn_1"
adapter = "support"
cached = "0.01"
"""


def test_prices_are_exact_and_reach_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(PRICES)
    settings = load()
    assert list(settings.prices) == [
        Price(prompt=Decimal("0.15"), completion=Decimal("0.6")),
        Price(cached=Decimal("0.01"), tenant="tn_1", adapter="support"),
    ]
    for name, value in child_environment(settings, ("prices", "currency", "usage_retention_days")).items():
        monkeypatch.setenv(name, value)
    inherited = load()
    assert inherited.prices == settings.prices
    assert (inherited.currency, inherited.usage_retention_days) == ("EUR", 90)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[prices]]\nprompt = "-1"', "prices"),
        ('[[prices]]\ncolour = "1"', "prices.0.colour"),
        ('currency = "dollars"', "currency"),
        ("usage_retention_days = 1", "usage_retention_days"),
    ],
)
def test_bad_prices_are_rejected_by_name(text: str, named: str) -> None:
    write_file(text)
    assert named in rejection()


def test_urls_default_to_the_data_directory(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path)
    assert settings.effective_database_url == f"sqlite+aiosqlite:///{tmp_path}/loragate.db"
    assert settings.effective_blob_url == f"file://{tmp_path}/blobs"
    assert load(database_url="postgresql://db/x").effective_database_url == "postgresql://db/x"


def test_an_identity_provider_is_configured_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load().oidc.issuer
    monkeypatch.setenv("LORAGATE_OIDC__ISSUER", "https://login.example.org")
    assert "oidc.audience" in rejection()
    monkeypatch.setenv("LORAGATE_OIDC__AUDIENCE", "loragate")
    monkeypatch.setenv("LORAGATE_OIDC__ADMIN_VALUE", "admins")
    settings = load()
    config = settings.oidc
    assert (config.issuer, config.admin_claim) == ("https://login.example.org", "groups")
    assert child_environment(settings, ("oidc",)).items() >= {"LORAGATE_OIDC__AUDIENCE": "loragate"}.items()
    monkeypatch.setenv("LORAGATE_OIDC__ISSUER", "http://login.example.org")
    assert "oidc.issuer" in rejection()


IMPORTS = """
[imports]
hub = "https://hub.internal:8443"

[[imports.buckets]]
path = "acme-adapters/released"
tenants = ["tn_1"]

[[imports.buckets]]
path = "everybodys"
"""


def test_import_settings_reach_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(IMPORTS)
    settings = load()
    found = settings.imports
    assert found.hub == "https://hub.internal:8443"
    assert found.grants("acme-adapters/released/x", "tn_1")
    assert not found.grants("acme-adapters/released/x", "tn_2")
    assert found.grants("everybodys", "tn_2")
    for name, value in child_environment(settings, ("imports",)).items():
        monkeypatch.setenv(name, value)
    assert load().imports == settings.imports


SIGNATURES = """
[signatures]
require = "always"

[[signatures.signers]]
name = "acme-release"
public_key = "release.pub"

[[signatures.signers]]
name = "partner"
certificate = "/etc/loragate/partner.pem"
subject = "CN=release,O=Partner"
"""


def test_signature_settings_reach_the_gateway_and_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(SIGNATURES)
    settings = load()
    found = settings.signatures
    assert (found.require, found.trust_fine_tuning) == (Require.ALWAYS, False)
    assert found.signers == (
        SignerConfig("acme-release", public_key=Path("release.pub")),
        SignerConfig("partner", certificate=Path("/etc/loragate/partner.pem"), subject="CN=release,O=Partner"),
    )
    with pytest.raises(CliError, match=r"release\.pub of 'acme-release' cannot be used: No such file"):
        gateway_config(settings, "127.0.0.1:0")
    for name, value in child_environment(settings, ("signatures",)).items():
        monkeypatch.setenv(name, value)
    assert load().signatures == found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[signatures]\nrequire = "sometimes"', "signatures.require"),
        ('[signatures]\nrequire = "always"', "signatures.require"),
        ('[signatures]\nrequires = "always"', "signatures.requires"),
        ('[[signatures.signers]]\nname = "acme"', "signatures.signers"),
        ('[[signatures.signers]]\nname = "acme"\npublic_key = "x"\nkey = "x"', "signatures.signers.0.key"),
    ],
)
def test_bad_signature_settings_are_rejected_by_name(text: str, named: str) -> None:
    write_file(text)
    assert named in rejection()


def test_the_hub_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_IMPORTS__HUB", "none")
    settings = load()
    assert settings.imports.hub is None
    monkeypatch.setenv("LORAGATE_IMPORTS__HUB", child_environment(settings, ("imports",))["LORAGATE_IMPORTS__HUB"])
    assert load().imports == settings.imports


def test_lists_of_imports_are_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_IMPORTS__HOSTS", '["hub.example"]')
    monkeypatch.setenv("LORAGATE_IMPORTS__BUCKETS", '[{"path": "acme", "tenants": ["tn_1"]}]')
    found = load().imports
    assert (found.hosts, found.grants("acme/x", "tn_1"), found.grants("acme/x", "tn_2")) == (
        ("hub.example",),
        True,
        False,
    )


def test_a_bad_field_of_a_section_is_named_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file("[engine]\nadapter_slots = 0")
    assert rejection().startswith("engine.adapter_slots in loragate.toml: engine.adapter_slots must be at least 1")
    monkeypatch.setenv("LORAGATE_ENGINE__ADAPTER_SLOTS", "0")
    assert rejection().startswith("LORAGATE_ENGINE__ADAPTER_SLOTS: engine.adapter_slots must be at least 1, got 0")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[imports]\nhub = "huggingface.co"', "imports"),
        ('[imports]\nhub = "https://user@hub"', "imports"),
        ('[imports]\nhosts = ["https://hub/path"]', "imports"),
        ('[imports]\nhosts = ["*"]', "imports"),
        ('[imports]\nhosts = ["localhost"]', "imports"),
        ('[[imports.buckets]]\nplace = "s3://bucket"', "imports"),
        ('[[imports.buckets]]\nbucket = "x"', "imports.buckets.0"),
        ('[imports]\nhubb = "none"', "imports.hubb"),
        ("[imports]\nmax_concurrent = 0", "imports.max_concurrent"),
    ],
)
def test_bad_import_settings_are_rejected_by_name(text: str, named: str) -> None:
    write_file(text)
    assert named in rejection()


def test_requests_are_logged_only_if_the_operator_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load(model="m").access_log
    monkeypatch.setenv("LORAGATE_ACCESS_LOG", "true")
    chosen = load(model="m")
    assert chosen.access_log
    assert Programs(chosen, "unix:/engine", 3, "127.0.0.1:1").gateway().environment["LORAGATE_ACCESS_LOG"] == "True"


def test_origins_are_listed_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORAGATE_CORS_ORIGINS", "https://app.example, http://localhost:5173")
    assert load().cors_origins == ("https://app.example", "http://localhost:5173")
    monkeypatch.setenv("LORAGATE_CORS_ORIGINS", "https://app.example/")
    assert rejection().startswith("LORAGATE_CORS_ORIGINS: must be '*' or origins of the form scheme://host")


def test_engines_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(**given: Any) -> list[tuple[str, str]]:
        config = gateway_config(load(data_dir=tmp_path, **given), "127.0.0.1:0")
        return [(each.id, each.target) for each in config.engine_addresses]

    assert addresses() == [("engine-0", "127.0.0.1:50100")]
    assert addresses(engine_target="unix:/a") == [("engine-0", "unix:/a")]
    assert addresses(engine_targets=["unix:/a/b.sock", "b=localhost:1"]) == [
        ("a-b.sock", "unix:/a/b.sock"),
        ("b", "localhost:1"),
    ]
    monkeypatch.setenv("LORAGATE_ENGINE_TARGETS", "unix:/b, c=unix:/c")
    assert addresses(engine_target="unix:/a") == [("engine-0", "unix:/a"), ("b", "unix:/b"), ("c", "unix:/c")]
    monkeypatch.delenv("LORAGATE_ENGINE_TARGETS")
    assert addresses(engine_target="none") == []
    for bad, words in (
        (["a=unix:/a", "a=unix:/b"], "two engines have the id a"),
        (["a b=unix:/a"], "the id of an engine must be"),
        (["a="], "engine a has no address"),
        (["gpu:50100"], "needs TLS"),
    ):
        with pytest.raises(CliError, match=words):
            addresses(engine_targets=bad)
