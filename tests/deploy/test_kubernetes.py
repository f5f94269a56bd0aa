"""deploy/kubernetes as it is written: valid, confined, without secrets, and with settings that loragate has.

test_kubernetes_rendered.py has Kustomize put the same documents together.
"""

import copy
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
import yaml
from manifest_checks import (
    check_confined,
    check_image,
    check_probes,
    check_references,
    check_schema,
    check_volumes,
)
from manifests import FOLDER, OVERLAYS, Container, containers, documents_of, kustomization, of_kind, settings_of
from secret_files import SECRET, made_secrets

from loragate.cli.data_dir.preparation import check_replicas, engine_secrets
from loragate.cli.main import app
from loragate.cli.settings.load import load
from loragate.cli.settings.model import Settings
from loragate.cli.settings.names import environment_names
from loragate.cli.standalone.gateway import gateway_config
from loragate.cli.standalone.panel import panel_config
from loragate.engine.link_security import check_target
from loragate.engine.server.access import check_access

BASE = FOLDER / "base"
EVERYTHING = documents_of(BASE) + [each for name in OVERLAYS for each in documents_of(FOLDER / "overlays" / name)]
CONTAINERS = containers(EVERYTHING)
OURS = [each for each in CONTAINERS if each.is_ours]
# What Kustomize 4.5 and 5 both read, and neither calls deprecated.
KUSTOMIZATION = {
    *("apiVersion", "kind", "namespace", "labels", "resources"),
    *("patches", "configMapGenerator", "secretGenerator"),
}


def named(value: Container | dict[str, Any]) -> str:
    return value.name if isinstance(value, Container) else f"{value['kind']}-{value['metadata']['name']}"


def container(name: str) -> Container:
    (found,) = [each for each in OURS if each.name == f"loragate-{name}"]
    return found


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made_secrets(tmp_path_factory.mktemp("secrets"))


@pytest.mark.parametrize("document", EVERYTHING, ids=named)
def test_a_document_follows_its_schema(document: dict[str, Any]) -> None:
    check_schema(document)
    broken = copy.deepcopy(document) | {"specc": {}}
    with pytest.raises(jsonschema.ValidationError, match="specc"):
        check_schema(broken)


@pytest.mark.parametrize("each", CONTAINERS, ids=named)
def test_a_pod_is_confined_pinned_and_watched(each: Container) -> None:
    check_confined(each)
    check_image(each)
    check_probes(each)
    check_volumes(each, each.workload)


def test_a_pod_that_is_not_confined_is_noticed() -> None:
    broken = copy.deepcopy(container("engine"))
    broken.spec["securityContext"]["readOnlyRootFilesystem"] = False
    with pytest.raises(AssertionError):
        check_confined(broken)
    broken.spec["livenessProbe"] = {"exec": {"command": ["healthcheck", "--engines"]}}
    with pytest.raises(AssertionError):
        check_probes(broken)


def test_names_lead_somewhere() -> None:
    check_references(EVERYTHING)
    (policy,) = [
        each for each in EVERYTHING if each["metadata"]["name"] == "loragate-redis" and "ingress" in each["spec"]
    ]
    broken = copy.deepcopy(policy)
    broken["spec"]["ingress"][0]["ports"] = [{"port": "postgres"}]
    with pytest.raises(AssertionError):
        check_references([*EVERYTHING, broken])


@pytest.mark.parametrize("folder", [BASE, FOLDER / "secrets", *(FOLDER / "overlays" / name for name in OVERLAYS)])
def test_kustomize_4_and_5_read_the_folder(folder: Path) -> None:
    document = kustomization(folder)
    assert set(document) <= KUSTOMIZATION
    assert all((folder / name).exists() for name in document.get("resources", []))
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == {name for name in document.get("resources", []) if name.endswith(".yaml")}
    for patch in document.get("patches", []):
        assert {"target", "patch"} == set(patch)
        assert ("StatefulSet" if patch["target"]["name"] == "loragate-engine" else "Deployment") == patch["target"][
            "kind"
        ]
        assert patch["target"]["name"] in {each.name for each in OURS}
        assert {each["op"] for each in yaml.safe_load(patch["patch"])} <= {"add", "replace"}


def test_no_secret_is_in_the_files() -> None:
    assert not list(of_kind(EVERYTHING, "Secret"))
    for each in CONTAINERS:
        plain = {variable["name"] for variable in each.spec.get("env", []) if "value" in variable}
        files = {"LORAGATE_TLS_KEY", "LORAGATE_ENGINE_CLIENT_KEY"}
        assert not [name for name in plain - files if SECRET.search(name)]
    assert not [name for name in settings_of(BASE) if SECRET.search(name)]


def test_every_secret_key_is_in_the_example(secrets: dict[str, str]) -> None:
    example = (FOLDER / "secrets" / "loragate.env.example").read_text()
    optional = set(re.findall(r"^# ([A-Z_]+)=$", example, re.MULTILINE))
    read = {key: is_optional for each in CONTAINERS for key, is_optional in each.secret_keys.items()}
    assert {key for key, is_optional in read.items() if not is_optional} <= set(secrets)
    assert set(read) == set(secrets) | optional
    assert not set(secrets) & optional


def test_a_part_gets_the_secrets_that_it_needs_and_no_others() -> None:
    keys = {each.name: set(each.secret_keys) for each in OURS}
    gateways = keys.pop("loragate-gateway")
    assert "LORAGATE_ADMIN_KEY" in gateways
    assert all("LORAGATE_ADMIN_KEY" not in each for each in keys.values())
    assert not keys["loragate-panel"]
    assert not {"LORAGATE_SECRET_KEY", "LORAGATE_REDIS_URL", "AWS_ACCESS_KEY_ID"} & keys["loragate-engine"]
    with_key = {each.name for each in OURS if "/etc/loragate/engine/tls.key" in each.files}
    assert with_key == {"loragate-engine"}, "that key is all it takes to stand in for an engine"


@pytest.mark.parametrize("each", OURS, ids=named)
def test_every_variable_is_a_setting_and_every_file_is_there(each: Container, secrets: dict[str, str]) -> None:
    environment = each.environment(settings_of(BASE), secrets)
    ours = {name for name in environment if name.startswith("LORAGATE_")}
    assert ours <= set(environment_names(Settings))
    assert set(environment) - ours <= {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "POD_NAME", "POD_NAMESPACE"}
    files = {value for value in environment.values() if value.startswith("/etc/loragate/")}
    assert files <= set(each.files)
    (command,) = each.spec["args"]
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_each_part_accepts_its_settings(
    overlay: str, secrets: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings_of(BASE, FOLDER / "overlays" / overlay)

    def settings_of_part(name: str) -> Settings:
        for variable in [each for each in os.environ if each.startswith(("LORAGATE_", "AWS_"))]:
            monkeypatch.delenv(variable)
        for variable, value in container(name).environment(chosen, secrets).items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("LORAGATE_DATA_DIR", str(tmp_path))
        return load()

    gateway = settings_of_part("gateway")
    check_replicas(gateway)
    (autoscaler,) = of_kind(EVERYTHING, "HorizontalPodAutoscaler")
    assert gateway.replicas >= autoscaler["spec"]["maxReplicas"] > autoscaler["spec"]["minReplicas"] >= 2
    config = gateway_config(gateway, "0.0.0.0:50051")
    assert (config.engine_target, config.engines) == (None, ())
    assert config.redis_url
    ports = {each["containerPort"] for each in container("gateway").spec["ports"]}
    assert ports == {gateway.port, gateway.grpc_port}

    engine = settings_of_part("engine")
    assert engine.engine.id == "name-0"
    assert engine.engine.advertise == "name-0.loragate-engine.namespace-0.svc:50100"
    check_target(engine.engine.advertise, engine.engine_tls)
    secret, *_ = engine_secrets(engine)
    check_access(
        engine.engine.config(
            str(engine.model),
            engine.data_dir,
            secret=secret,
            tls_cert=engine.tls_cert,
            tls_key=engine.tls_key,
            tls_client_ca=engine.tls_client_ca,
        )
    )
    assert (engine.secret_key, secret) == (None, config.engine_secret)

    workers = [settings_of_part(name) for name in ("finetune-worker", "trainer")]
    for client in (gateway, *workers):
        check_target(engine.engine.advertise, client.engine_tls)
    for worker in workers:
        assert (worker.first_engine, worker.more_engines) == (None, ())
        shared = engine.model, gateway.blob_url, gateway.secret_key
        assert (worker.model, worker.blob_url, worker.secret_key) == shared

    panel = panel_config(settings_of_part("panel"))
    (service,) = [each for each in of_kind(EVERYTHING, "Service") if each["metadata"]["name"] == "loragate-gateway"]
    assert panel.gateway_url == f"https://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


@pytest.mark.parametrize("name", ["engine", "gateway"])
def test_a_pod_ends_after_its_requests(name: str) -> None:
    pod = container(name)
    waited = int(pod.spec["lifecycle"]["preStop"]["exec"]["command"][1]) if "lifecycle" in pod.spec else 0
    drain = float(settings_of(BASE)["LORAGATE_DRAIN_SECONDS"])
    assert pod.pod["terminationGracePeriodSeconds"] >= waited + drain + 15  # 10 of them to end the engine's process


def test_variables_of_services_would_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes adds such a variable for each Service, unless `enableServiceLinks` is off."""
    monkeypatch.setenv("LORAGATE_GATEWAY_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(Exception, match="LORAGATE_GATEWAY_SERVICE_HOST"):
        load()


def test_the_demos_model_is_where_the_settings_say() -> None:
    model = settings_of(BASE)["LORAGATE_MODEL"]
    assert model.startswith("/opt/loragate/lib/python3.11/site-packages/loragate/")
    assert (FOLDER.parent.parent / model.partition("/loragate/lib/python3.11/site-packages/loragate/")[2]).is_dir()


def test_autoscaling_goes_by_metrics_that_exist() -> None:
    (scaled,) = of_kind(EVERYTHING, "ScaledObject")
    page = (FOLDER.parent.parent / "docs" / "observability.md").read_text()
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    for name in {name for query in queries for name in re.findall(r"loragate_\w+", query)}:
        assert f"| `{name.removesuffix('_bucket')}` |" in page
    assert "request_queue_time_seconds" in queries[0]
    assert float(scaled["spec"]["triggers"][1]["metadata"]["threshold"]) == Settings().engine.max_batch_size / 2


def test_garage_has_the_configuration_that_compose_gives_it() -> None:
    ours = (FOLDER / "overlays" / "cpu" / "garage.toml").read_text()
    theirs = (FOLDER.parent / "docker" / "garage.toml").read_text()
    assert ours == theirs.replace("(compose.yaml)", "(garage.yaml)")


def test_stores_have_the_versions_of_compose() -> None:
    composed = yaml.safe_load((FOLDER.parent / "docker" / "compose.yaml").read_text())["services"]
    stores = {each.name.removeprefix("loragate-"): each.spec["image"] for each in CONTAINERS if not each.is_ours}
    assert stores == {name: composed[name]["image"] for name in ("postgres", "redis", "garage")}


def test_the_page_names_what_the_manifests_have() -> None:
    page = (FOLDER.parent.parent / "docs" / "kubernetes.md").read_text()
    objects = {(each["kind"].lower(), each["metadata"]["name"]) for each in EVERYTHING}
    named = set(re.findall(r"\b(deployment|service|statefulset)/(loragate-[a-z-]+)", page))
    assert len(named) == 3
    assert named <= objects
    labels = {f"{key}={value}" for key, value in re.findall(r"(loragate-[a-z]+): (allowed)\b", str_of_policies())}
    assert labels == set(re.findall(r"loragate-[a-z]+=allowed", page))
    for overlay in OVERLAYS:
        assert f"`deploy/kubernetes/overlays/{overlay}`" in page
    for each in OURS:
        assert f"`{each.name}`" in page
        assert not set(re.findall(r"/etc/loragate/\S+?\.crt", page)) - set(container("gateway").files)


def str_of_policies() -> str:
    return yaml.safe_dump([each for each in EVERYTHING if each["kind"] == "NetworkPolicy"])
