"""deploy/kubernetes as files: its documents, as they are before Kustomize patches them or as it renders them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent.parent / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
Document = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet")
_REFERENCE = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True)
class Container:
    """The only container of a workload, and the pod around it."""

    name: str
    workload: Document

    @property
    def pod(self) -> Document:
        return self.workload["spec"]["template"]["spec"]

    @property
    def labels(self) -> dict[str, str]:
        return self.workload["spec"]["template"]["metadata"]["labels"]

    @property
    def spec(self) -> Document:
        (container,) = self.pod["containers"]
        return container

    @property
    def is_ours(self) -> bool:
        return self.spec["image"].startswith("loragate")

    @property
    def secret_keys(self) -> dict[str, bool]:
        """Return the keys of the Secret `loragate` that it reads, and whether each is optional."""
        references = [each["valueFrom"].get("secretKeyRef") for each in self.spec.get("env", []) if "valueFrom" in each]
        found = [each for each in references if each is not None]
        assert all(base_name(each["name"]) == "loragate" for each in found)
        return {each["key"]: each.get("optional", False) for each in found}

    @property
    def files(self) -> dict[str, str]:
        """Return the paths of the files of Secrets that it sees, each with its Secret."""
        volumes = {each["name"]: each["secret"] for each in self.pod.get("volumes", []) if "secret" in each}
        found = {}
        for mount in self.spec["volumeMounts"]:
            secret = volumes.get(mount["name"], {})
            for key in [item["path"] for item in secret.get("items", [])] or (
                ["tls.crt", "tls.key", "ca.crt"] * bool(secret)
            ):
                found[f"{mount['mountPath']}/{key}"] = secret["secretName"]
        return found

    def environment(self, settings: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that its process has, with the settings' ConfigMap and the Secret's values."""
        found = dict(settings) if "envFrom" in self.spec else {}
        for each in self.spec.get("env", []):
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = source["fieldRef"]["fieldPath"].rpartition(".")[2] + "-0"
            elif "secretKeyRef" in source:
                key = source["secretKeyRef"]["key"]
                found |= {each["name"]: secrets[key]} if key in secrets else {}
            else:
                value = each["value"]
                for name in _REFERENCE.findall(value):
                    value = value.replace(f"$({name})", found[name])
                found[each["name"]] = value
        return found


def containers(documents: Iterable[Document]) -> list[Container]:
    """Return the containers of all workloads."""
    return [Container(each["metadata"]["name"], each) for each in documents if each["kind"] in WORKLOADS]


def kustomization(folder: Path) -> Document:
    """Return a folder's kustomization.yaml."""
    return yaml.safe_load((folder / "kustomization.yaml").read_text())


def documents_of(folder: Path) -> list[Document]:
    """Return the documents of a folder's own files, without the folders that it includes."""
    return [
        document
        for name in kustomization(folder)["resources"]
        if name.endswith(".yaml")
        for document in yaml.safe_load_all((folder / name).read_text())
    ]


def settings_of(*folders: Path) -> dict[str, str]:
    """Return the ConfigMap `loragate-settings` that folders make, the later ones' values over the earlier ones'."""
    found: dict[str, str] = {}
    for folder in folders:
        for generator in kustomization(folder).get("configMapGenerator", []):
            if generator["name"] == "loragate-settings":
                lines = [
                    line for name in generator.get("envs", []) for line in (folder / name).read_text().splitlines()
                ]
                found |= variables([*lines, *generator.get("literals", [])])
    return found


def variables(lines: Iterable[str]) -> dict[str, str]:
    """Return the variables of lines such as NAME=value."""
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def base_name(name: str) -> str:
    """Return a name without the hash that Kustomize appends."""
    return re.sub(r"-[0-9a-z]{10}$", "", name)


def selected(documents: Iterable[Document], selector: Mapping[str, Any]) -> list[Container]:
    """Return the containers of the pods that a label selector selects."""
    expressions = selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in expressions)
    return [
        each
        for each in containers(documents)
        if each.labels.items() >= selector.get("matchLabels", {}).items()
        and all(each.labels.get(expression["key"]) in expression["values"] for expression in expressions)
    ]


def port_names(container: Container) -> set[str]:
    return {port["name"] for port in container.spec.get("ports", [])}


def of_kind(documents: Iterable[Document], kind: str) -> Iterator[Document]:
    return (document for document in documents if document["kind"] == kind)
