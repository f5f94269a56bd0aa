"""What holds for the documents of deploy/kubernetes, before and after Kustomize has patched them."""

import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate.utils
from manifests import FOLDER, Container, Document, base_name, containers, of_kind, port_names, selected

ROOT = FOLDER.parent.parent
NEWEST = "1.37"
SCHEMAS = Path(__file__).parent / "manifest_schemas"
DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")
PROGRAMS = {"healthcheck", "sleep"}  # of our images, the latter of coreutils
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)  # they are megabytes


def check_schema(document: Document, version: str = NEWEST) -> None:
    """Raise ValidationError for a document that has another form than its kind, or a field that its kind lacks."""
    if "." in document["apiVersion"].partition("/")[0] and not document["apiVersion"].partition("/")[0].endswith(
        "k8s.io"
    ):
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text())
        jsonschema.validators.validator_for(schema)(schema).validate(document)
    else:
        kubernetes_validate.utils.validate(document, version, strict=True)


def check_confined(container: Container) -> None:
    """Check the restricted Pod Security Standard, a read-only root file system, and what the pod may not use."""
    pod, spec = container.pod, container.spec
    assert "initContainers" not in pod
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(spec["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in spec["resources"]["limits"]
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "emptyDir", "ephemeral", "persistentVolumeClaim", "secret"}


def check_image(container: Container) -> None:
    """Check that our images have the package's version, and that others' tags move seldom or never."""
    name, _, tag = container.spec["image"].rpartition(":")
    if container.is_ours:
        assert tag == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert name in ("loragate", "loragate-finetune", "loragate-cuda")
    else:
        assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag)


def check_probes(container: Container) -> None:
    """Check that all probes there are name ports and programs that exist."""
    spec = container.spec
    assert {"readinessProbe", "livenessProbe"} <= set(spec)
    actions: list[Any] = [spec[probe] for probe in PROBES if probe in spec]
    actions += [spec["lifecycle"]["preStop"]] if "lifecycle" in spec else []
    for action in actions:
        for kind in ("httpGet", "tcpSocket"):
            assert action.get(kind, {}).get("port", None) in {None, *port_names(container)}
        if container.is_ours and "exec" in action:
            program, *options = action["exec"]["command"]
            assert program in PROGRAMS
            assert program != "healthcheck" or set(options) <= healthcheck_options()


@cache
def healthcheck_options() -> set[str]:
    """Return the options of the images' health check, which all images have."""
    folder = ROOT / "deploy" / "docker"
    assert all("healthcheck.py /usr/local/bin/healthcheck\n" in (folder / name).read_text() for name in DOCKERFILES)
    return set(re.findall(r'"(--\w+)": ', (folder / "healthcheck.py").read_text()))


def check_volumes(container: Container, document: Document) -> None:
    """Check that each mount has its volume and each volume a mount, and that /tmp and /data can be written to."""
    claims = {each["metadata"]["name"] for each in document["spec"].get("volumeClaimTemplates", [])}
    mounts = {mount["name"]: mount for mount in container.spec["volumeMounts"]}
    assert set(mounts) == claims | {volume["name"] for volume in container.pod.get("volumes", [])}
    if container.is_ours:
        writable = {mount["mountPath"] for mount in mounts.values() if not mount.get("readOnly")}
        assert writable == {"/data", "/tmp"}


def check_references(documents: list[Document]) -> None:
    """Check that selectors select pods, and that the ports and targets that others name exist."""
    names = {(each["kind"], each["metadata"]["name"]) for each in documents}
    for document in documents:
        kind, spec = document["kind"], document.get("spec", {})
        if kind in ("Deployment", "StatefulSet"):
            labels = spec["template"]["metadata"]["labels"]
            assert labels.items() >= spec["selector"]["matchLabels"].items()
            assert len(selected(documents, spec["selector"])) == 1
            assert kind == "Deployment" or ("Service", spec["serviceName"]) in names
        elif kind == "Service":
            (pod,) = selected(documents, {"matchLabels": spec["selector"]})
            assert {port["targetPort"] for port in spec["ports"]} <= port_names(pod)
        elif kind == "PodDisruptionBudget":
            assert len(selected(documents, spec["selector"])) == 1
        elif kind in ("HorizontalPodAutoscaler", "ScaledObject"):
            assert (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) in names
        elif kind == "ServiceMonitor":
            check_monitor(document, documents)
        elif kind == "NetworkPolicy":
            check_policy(spec, documents)


def check_monitor(document: Document, documents: list[Document]) -> None:
    """Check that a ServiceMonitor selects one Service and one of its ports."""
    wanted = document["spec"]["selector"]["matchLabels"].items()
    (service,) = [each for each in of_kind(documents, "Service") if each["metadata"]["labels"].items() >= wanted]
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in document["spec"]["endpoints"]} <= ports


def check_policy(spec: Document, documents: list[Document]) -> None:
    """Check that a NetworkPolicy selects pods, admits pods that exist, and names ports of theirs."""
    targets = selected(documents, spec["podSelector"])
    assert targets
    for rule in spec.get("ingress", []):
        check_ports(rule, targets)
        assert all(selected(documents, peer["podSelector"]) for peer in rule["from"] if "podSelector" in peer)
    for rule in spec.get("egress", []):
        for peer in rule.get("to", []):
            assert selected(documents, peer["podSelector"])
            check_ports(rule, selected(documents, peer["podSelector"]))


def check_ports(rule: Document, pods: Iterable[Container]) -> None:
    named = {port["port"] for port in rule["ports"] if isinstance(port["port"], str)}
    assert all(named <= port_names(pod) for pod in pods)


def check_names(documents: list[Document]) -> None:
    """Check that rendered documents refer to ConfigMaps and Secrets that were rendered, too."""
    made = {(each["kind"], each["metadata"]["name"]) for each in documents}
    for container in containers(documents):
        env = container.spec.get("env", [])
        named = {
            ("Secret", e["valueFrom"]["secretKeyRef"]["name"]) for e in env if "secretKeyRef" in e.get("valueFrom", {})
        }
        named |= {("ConfigMap", each["configMapRef"]["name"]) for each in container.spec.get("envFrom", [])}
        named |= {("Secret", v["secret"]["secretName"]) for v in container.pod.get("volumes", []) if "secret" in v}
        assert named <= made, f"{container.name}: {named - made}"
        assert {base_name(name) for kind, name in named if kind == "ConfigMap"} <= {"loragate-settings"}
