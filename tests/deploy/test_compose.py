"""compose.yaml: valid, confined, without secrets, and with settings that loragate has."""

import json
import os
import re
import stat
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from composition import FOLDER, Composition, composition, make_env, variables_of

from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.settings.names import environment_names
from loragate.cli.supervisor.serve import check_combination
from loragate.gateway.http.middleware import PROBES

ROOT = FOLDER.parent.parent
SCHEMA = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
SERVICES = sorted(yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"])
SECRET = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|AUTH")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_env(tmp_path_factory.mktemp("env"))


@pytest.fixture(scope="module")
def composed(env: dict[str, str]) -> Composition:
    return composition(env)


@pytest.mark.parametrize("file", ["compose.yaml", "compose.cuda.yaml"])
def test_it_follows_the_compose_specification(file: str) -> None:
    document = yaml.safe_load((FOLDER / file).read_text())
    jsonschema.validators.validator_for(SCHEMA)(SCHEMA).validate(document)
    document["services"]["loragate"]["healtcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="healtcheck"):
        jsonschema.validate(document, SCHEMA)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_watched_and_confined(composed: Composition, name: str) -> None:
    service = composed.services[name]
    image, _, tag = service["image"].rpartition(":")
    assert image
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), "a tag that moves seldom or never"
    if "build" in service:
        assert tag == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert set(service["deploy"]["resources"]["limits"]) == {"memory", "pids"}
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["restart"] == "unless-stopped"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", ["loragate", "finetune"])
def test_loragate_writes_to_its_volume_only(composed: Composition, name: str) -> None:
    service = composed.services[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    written = [volume for volume in service["volumes"] if not volume.endswith(":ro")]
    assert [volume.split(":")[1] for volume in written] == ["/data", "/run/loragate"]


def test_services_wait_for_what_they_need(composed: Composition) -> None:
    waits = {name: service.get("depends_on", {}) for name, service in composed.services.items()}
    assert all(set(each) <= set(composed.services) for each in waits.values())
    assert {name: condition["condition"] for name, condition in waits["loragate"].items()} == dict.fromkeys(
        ("postgres", "redis", "garage"), "service_healthy"
    )
    assert waits["finetune"] == {"loragate": {"condition": "service_healthy"}}
    assert waits["grafana"] == {"prometheus": {"condition": "service_healthy"}}
    assert waits["prometheus"] == {"loragate": {"condition": "service_started"}}


def test_the_stores_are_reached_by_loragate_only(composed: Composition) -> None:
    stores = {"postgres", "redis", "garage"}
    assert composed.raw["networks"]["stores"]["internal"]
    for name, service in composed.services.items():
        networks = service.get("networks", ["default"])
        assert ("stores" in networks) == (name in stores | {"loragate", "finetune"})
        assert (networks == ["stores"] and "ports" not in service) == (name in stores)


def test_no_secret_is_in_the_file(composed: Composition) -> None:
    for name, service in composed.raw["services"].items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert re.fullmatch(r"\$\{\w+:\?run ./make-env\}", value), f"{variable} of {name}"
            elif "://" in value and "@" in value:
                assert re.search(r"://\w*:\$\{\w+:\?run ./make-env\}@", value), f"{variable} of {name}"


def test_what_it_requires_is_in_the_example(env: dict[str, str]) -> None:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    named = variables_of(document)
    assert {name for name, kind in named if kind != ":-"} <= set(env)
    assert set(env) <= {name for name, _ in named}


def test_every_variable_is_a_setting(composed: Composition) -> None:
    known = set(environment_names(Settings))
    for name, service in composed.services.items():
        ours = {each for each in service.get("environment", {}) if each.startswith("LORAGATE_")}
        assert ours <= known, name
        assert bool(ours) == (name in ("loragate", "finetune"))


@pytest.mark.parametrize(
    ("chosen", "served"), [({}, "demo"), ({"LORAGATE_DEMO": "", "LORAGATE_MODEL": "/models/mine"}, "model")]
)
def test_the_server_accepts_its_settings(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], served: str
) -> None:
    composed = composition(env, **chosen)
    for name in [name for name in os.environ if name.startswith("LORAGATE_")]:
        monkeypatch.delenv(name)
    for name, value in composed.variables("loragate").items():
        monkeypatch.setenv(name, value)
    settings = load()
    check_combination(settings)
    assert (settings.demo, settings.model) == ((True, None) if served == "demo" else (False, "/models/mine"))
    worker = composed.variables("finetune")
    assert worker["LORAGATE_ENGINE_TARGET"] == settings.engine.listen
    shared = ("LORAGATE_DATABASE_URL", "LORAGATE_BLOB_URL", "LORAGATE_SECRET_KEY", "AWS_ENDPOINT_URL")
    assert [worker[name] for name in shared] == [composed.variables("loragate")[name] for name in shared]


def test_what_it_mounts_exists(composed: Composition) -> None:
    for name, service in composed.services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith(".") and source != composed.environment["MODELS"]:
                assert (FOLDER / source).exists(), f"{source} of {name}"
            elif not source.startswith("."):
                assert source in composed.raw["volumes"], f"{source} of {name}"


def test_prometheus_scrapes_the_server(composed: Composition) -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    ((target,),) = (each["targets"] for each in job["static_configs"])
    service, port = target.split(":")
    assert any(each.endswith(f":{port}") for each in composed.services[service]["ports"])
    assert job.get("metrics_path", "/metrics") in PROBES


def test_grafana_shows_the_dashboard(composed: Composition) -> None:
    mounted = {target: FOLDER / source for source, target, *_ in map(_parts, composed.services["grafana"]["volumes"])}
    home = Path(composed.variables("grafana")["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    dashboard = json.loads((mounted[str(home.parent)] / home.name).read_text())
    provisioning = mounted["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "loragate.yaml").read_text())["providers"]
    assert provider["options"]["path"] == str(home.parent)
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    chosen = next(each for each in dashboard["templating"]["list"] if each["name"] == "datasource")
    assert source["type"] == chosen["query"]
    assert source["url"] == "http://prometheus:9090"


def _parts(volume: str) -> list[str]:
    return volume.split(":")


def test_make_env_writes_new_secrets_that_only_their_owner_reads(tmp_path: Path, env: dict[str, str]) -> None:
    made = make_env(tmp_path)
    secrets = {name for name in made if SECRET.search(name)}
    assert len(secrets) == 8
    assert all(len(made[name]) >= 24 and made[name] != env[name] for name in secrets)
    assert {name: made[name] for name in made.keys() - secrets} == {name: env[name] for name in env.keys() - secrets}
    # What Garage accepts: https://garagehq.deuxfleurs.fr/documentation/reference-manual/configuration/
    assert re.fullmatch(r"GK[0-9a-f]{24}", made["S3_ACCESS_KEY"])
    assert re.fullmatch(r"[0-9a-f]{64}", made["S3_SECRET_KEY"])
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600


def test_make_env_keeps_an_existing_file(tmp_path: Path) -> None:
    make_env(tmp_path)
    before = (tmp_path / ".env").read_bytes()
    again: Any = subprocess.run(["./make-env"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is kept" in again.stderr
    assert (tmp_path / ".env").read_bytes() == before
