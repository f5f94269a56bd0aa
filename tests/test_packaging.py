"""The wheel contains every part completely, and works without the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import numpy
import pytest
from running_server import clean_environment
from skip_for_missing import skip_for_missing

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
SHIPPED = (
    ".py", ".pyi", ".proto", ".mako", ".json", ".jinja", "py.typed", ".lua", ".js", ".css", ".html", ".svg",
    ".safetensors",
)  # fmt: skip


def git_files() -> list[str]:
    """Return what a clone would contain once everything here is committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def installed_path(name: str) -> str | None:
    """Return where the wheel puts a file of the checkout; None for what is not part of a package."""
    for package, folder in CONFIG["package-dir"].items():
        if PurePosixPath(name).is_relative_to(folder):
            return str(PurePosixPath(*package.split("."), PurePosixPath(name).relative_to(folder)))
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that nothing stale in build/ is included."""
    clone, dist = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("dist")
    for name in git_files():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(clone)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    [found] = dist.glob("*.whl")
    return found


def test_every_package_is_listed() -> None:
    packages = set()
    for name in git_files():
        where = installed_path(name)
        if where and where.endswith("/__init__.py"):
            packages.add(where.removesuffix("/__init__.py").replace("/", "."))
    assert packages == set(CONFIG["packages"])


def test_every_module_is_in_a_package() -> None:
    folders = {package.replace(".", "/") for package in CONFIG["packages"]}
    modules = [where for name in git_files() if name.endswith(".py") and (where := installed_path(name))]
    assert [module for module in modules if str(PurePosixPath(module).parent) not in folders] == []


def test_the_wheel_has_every_file_of_every_part(wheel: Path) -> None:
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {where for name in git_files() if name.endswith(SHIPPED) and (where := installed_path(name))}
    assert packed == expected
    assert {"loragate/v1/engine.proto", "loragate/migrations/env.py", "loragate/cli/py.typed"} <= packed
    assert {"loragate/demo/data/contents.json", "loragate/demo/data/loragate-demo/model.safetensors"} <= packed


def test_the_wheel_names_its_licence_and_every_extra(wheel: Path) -> None:
    archive = ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
    text = archive.read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text
    assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())
    extras = set(re.findall(r"^Provides-Extra: (.+)$", text, re.MULTILINE))
    assert extras == {"s3", "tracing", "finetune", "quantized", "panel", "ray", "serve", "all", "docs", "dev"}
    bare = [line for line in re.findall(r"^Requires-Dist: (.+)$", text, re.MULTILINE) if "extra ==" not in line]
    names = {re.split(r"[^\w-]", line)[0] for line in bare}
    assert names >= {"torch", "transformers", "fastapi", "sqlalchemy", "typer"}, (
        "the engine, the gateway and the commands"
    )
    assert not names & {"peft", "trl", "bitsandbytes", "compressed-tensors", "datasets", "nicegui", "s3fs", "triton"}


def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Our code comes from the wheel alone; the libraries are this environment's."""
    home = tmp_path / "venv"
    venv.create(home)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    libraries = str(Path(numpy.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": libraries}
    code = (
        "import asyncio, loragate.cli, loragate.engine.client.client, loragate.gateway.app, loragate.peft_format.read\n"
        "from loragate.adapter_store.database.schema import upgrade\n"
        "asyncio.run(upgrade('sqlite:///loragate.db'))\n"
        "print(loragate.cli.__file__)"
    )
    ran = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert Path(ran.stdout.strip()).is_relative_to(home)
    assert (tmp_path / "loragate.db").stat().st_size > 0
    version = subprocess.run([str(home / "bin" / "loragate"), "--version"], cwd=tmp_path, env=environment, check=True)
    assert version.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_bare_wheel_serves_the_demo_and_names_the_extras_that_commands_lack(wheel: Path, tmp_path: Path) -> None:
    """Everything comes from the package index, into an environment that is empty before."""
    home = tmp_path / "venv"
    venv.create(home)
    install_alone(wheel, home)
    data = tmp_path / "data"
    ports = ("--port", "0", "--grpc-port", "0", "--panel-port", "0")
    environment = clean_environment() | {"LORAGATE_DATA_DIR": str(data)}
    command = [str(home / "bin/loragate"), "demo", "--once", *ports]
    demo = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert demo.returncode == 0, demo.stderr
    answers = dict(re.findall(r"^  (\w+ / \w+) +(.*)$", demo.stdout, re.MULTILINE))
    assert len(answers) == 7
    assert answers["acme / json"] == '{"answer": "Paris"}'
    assert answers["globex / pirate"] == "Arr, it be Paris, matey!"
    assert "pip install 'loragate[panel]'" in demo.stderr
    assert not re.search(r"warning|traceback|error|request_id", demo.stderr, re.IGNORECASE), demo.stderr
    for command, extra in {"demo build": "finetune", "finetune-worker --model m": "finetune", "panel": "panel"}.items():
        words = [str(home / "bin/loragate"), *command.split()]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert f"pip install 'loragate[{extra}]'" in done.stderr


def install_alone(wheel: Path, home: Path) -> None:
    """Install the wheel with what it needs, at the versions of constraints.txt."""
    constraints = ["-c", str(ROOT / "constraints.txt"), str(wheel)]
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        skip_for_missing("uv, which `make test` installs")
    code = "import json, os, pip_settings as p; print(json.dumps(p.uv_variables(p.read_pip_settings(), os.environ)))"
    listed = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "requirements", capture_output=True, check=True)
    environment = os.environ | json.loads(listed.stdout)
    has_index = any(name in environment for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_DEFAULT_INDEX"))
    backend = [] if has_index else ["--torch-backend=cpu"]
    command = [str(uv), "pip", "install", "--quiet", "--python", str(home / "bin/python"), *backend, *constraints]
    subprocess.run(command, env=environment, check=True)
