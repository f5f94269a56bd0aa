"""`make serve` and `make test` install the listed files, from where pip is configured to find packages."""

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from requirement_lists import LISTS
from skip_for_missing import skip_for_missing

sys.path.insert(0, str(LISTS))  # the scripts are not part of the package
install: Any = import_module("install")
pip_settings: Any = import_module("pip_settings")
sys.path.remove(str(LISTS))

CPU = install.Machine("linux", "x86_64", "3.11", has_gpu=False)
GPU = install.Machine("linux", "x86_64", "3.11", has_gpu=True)
UNLISTED = install.Machine("linux", "riscv64", "3.11", has_gpu=False)
MAC = install.Machine("darwin", "arm64", "3.13", has_gpu=False)
PLACES = ("UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_NO_INDEX")


def test_variables_win_over_pips_files_and_install_over_global() -> None:
    listed = (
        ":env:.find-links='/wheels'\n"
        "global.find-links='/others'\n"
        "global.index-url='https://index.example/simple'\n"
        "install.index-url='https://other.example/simple'\n"
        "freeze.index-url='https://third.example/simple'\n"
        "global.extra-index-url='\\nhttps://a.example/simple\\nhttps://b.example/simple'\n"
    )
    assert pip_settings.parse_settings(listed) == {
        "find-links": "/wheels",
        "index-url": "https://other.example/simple",
        "extra-index-url": "\nhttps://a.example/simple\nhttps://b.example/simple",
    }


def test_uv_gets_pips_places_certificates_and_proxy() -> None:
    settings = {
        "find-links": "/wheels /more",
        "index-url": "https://index.example/simple",
        "extra-index-url": "\nhttps://a.example/simple\nfile:///b/simple",
        "cert": "/certificates.pem",
        "proxy": "http://proxy.example:3128",
        "no-index": "1",
        "default-timeout": "180",
    }
    found = pip_settings.uv_variables(settings, {})
    assert found == {
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://a.example/simple file:///b/simple",
        "SSL_CERT_FILE": "/certificates.pem",
        "ALL_PROXY": "http://proxy.example:3128",
        "UV_NO_INDEX": "1",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert pip_settings.names_a_place(found)


def test_uvs_own_variables_win() -> None:
    settings = {"index-url": "https://pip.example/simple", "cert": "/pip.pem"}
    environment = {"UV_INDEX_URL": "https://uv.example/simple", "SSL_CERT_FILE": "/uv.pem"}
    assert pip_settings.uv_variables(settings, environment) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_nothing_is_named_where_pip_has_no_settings() -> None:
    assert not pip_settings.names_a_place(pip_settings.uv_variables({"cert": "/a.pem", "timeout": "9"}, {}))


@pytest.mark.parametrize(
    ("machine", "expected"), [(CPU, "torch-cpu"), (GPU, "torch"), (UNLISTED, "torch"), (MAC, "torch")]
)
def test_only_a_cpu_machine_with_a_listed_build_gets_pytorch_for_cpus(machine: Any, expected: str) -> None:
    assert install.choose_torch(machine) == expected


@pytest.mark.parametrize(
    ("machine", "build", "expected"),
    [
        (CPU, "torch-cpu", ["--torch-backend=cpu"]),
        (GPU, "torch", []),
        (MAC, "torch", []),
        (CPU, "any", ["--torch-backend=cpu"]),
        (GPU, "any", ["--torch-backend=auto"]),
    ],
)
def test_pytorchs_own_index_is_asked_unless_the_environment_names_one(
    monkeypatch: pytest.MonkeyPatch, machine: Any, build: str, expected: list[str]
) -> None:
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    uv = install.Installer("uv", ("uv",), {}, backends=True)
    assert install.torch_backend(machine, build, uv) == expected
    assert install.torch_backend(machine, build, install.Installer("pip", ("pip",), {})) == []
    named = install.Installer("uv", ("uv",), {"UV_FIND_LINKS": "/wheels"}, backends=True)
    assert install.torch_backend(machine, build, named) == []
    monkeypatch.setenv("UV_INDEX", "https://index.example/simple")
    assert install.torch_backend(machine, build, uv) == []


def test_bytes_are_those_that_uv_and_pip_report() -> None:
    uv, pip = install.Downloads(), install.Downloads()
    lines = [
        "Downloading torch (181.5MiB)\n",
        "Downloading numpy (1.0MiB)\n",
        " Downloaded numpy\n",
        " Downloaded tiny\n",
    ]
    assert [uv.read(line) for line in lines] == [None, None, "numpy", None]
    assert uv.received == 2**20
    assert pip.read("  Downloading numpy-2.4.6-cp311-cp311-linux_x86_64.whl (16.5 MB)\n") == "numpy"
    assert pip.received == 16_500_000


def test_the_size_of_every_list_is_known_for_every_system() -> None:
    known = json.loads((LISTS / "downloads.json").read_text())
    assert known.keys() == {"linux x86_64", "linux aarch64", "darwin arm64"}
    for system, pythons in known.items():
        assert pythons.keys() == {"3.11", "3.12", "3.13"}
        for sizes in pythons.values():
            assert all(sizes[name] > 10_000_000 for name in ("serve", "dev", "torch", "uv")), system
    assert install.download_size(CPU, "serve", "torch-cpu") < 500_000_000
    assert install.download_size(UNLISTED, "serve") == 0


def make_wheel(folder: Path, name: str, version: str) -> str:
    """Write a wheel with one module and return its line in a list."""
    tag = f"{name}-{version}"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{tag}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{tag}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{tag}.dist-info/RECORD"
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()}
    lines = [f"{path},sha256={digests[path].decode().rstrip('=')},{len(text)}" for path, text in files.items()]
    wheel = folder / f"{tag}-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for path, text in {**files, record: "\n".join([*lines, f"{record},,"]) + "\n"}.items():
            archive.writestr(path, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tiny project with lists of tiny wheels, an environment for it, and a folder of packages without uv."""
    root, wheels = tmp_path / "checkout", tmp_path / "wheels"
    lists = root / "requirements"
    lists.mkdir(parents=True)
    wheels.mkdir()
    for name in ("install.py", "pip_settings.py", "uv.txt"):
        shutil.copy(LISTS / name, lists / name)
    marker = install.Machine(sys.platform, platform.machine(), "{}.{}".format(*sys.version_info), False).marker
    (lists / "serve.txt").write_text(make_wheel(wheels, "tinyserve", "1.0"))
    (lists / "torch.txt").write_text(make_wheel(wheels, "torch", "2.0"))
    cpu = make_wheel(wheels, "torch", "2.0+cpu").replace(" --hash", f" ; {marker} --hash")
    (lists / "torch-cpu.txt").write_text(cpu)
    (lists / "downloads.json").write_text("{}")
    (root / "ours.py").touch()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "ours"\nversion = "1"\n[tool.setuptools]\npy-modules = ["ours"]\n'
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    [packages] = root.glob(".venv/lib/python*/site-packages")
    (packages / "tools.pth").write_text(sysconfig.get_path("purelib"))  # pip and setuptools
    return root


def run_install(checkout: Path) -> str:
    """Run the script in the checkout, offline, and return what it prints."""
    hidden = ("PIP_", "UV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(checkout.parent / "wheels"),
        "UV_CACHE_DIR": str(checkout.parent / "cache"),
        "UV_OFFLINE": "1",
    }
    command = [checkout / ".venv/bin/python", checkout / "requirements/install.py", "serve"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def installed(checkout: Path) -> list[str]:
    code = "import tinyserve, torch, ours; print(tinyserve.version, torch.version)"
    command = [checkout / ".venv/bin/python", "-c", code]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout.split()


def add_uv(checkout: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        skip_for_missing("uv, which `make test` installs")
    (checkout / ".venv/bin/uv").symlink_to(uv)


def test_uv_installs_from_pips_folder_of_packages(checkout: Path) -> None:
    add_uv(checkout)
    printed = run_install(checkout)
    assert "PyTorch for CPUs" in printed
    assert installed(checkout) == ["1.0", "2.0+cpu"]


@pytest.mark.long
def test_pip_installs_the_default_build_where_neither_uv_nor_the_other_is_offered(checkout: Path) -> None:
    (checkout.parent / "wheels/torch-2.0+cpu-py3-none-any.whl").unlink()
    printed = run_install(checkout)
    assert "pip installs the packages" in printed
    assert "no index offers the listed build of PyTorch for CPUs" in printed
    assert installed(checkout) == ["1.0", "2.0"]


def test_another_file_under_a_listed_version_is_not_installed(checkout: Path) -> None:
    add_uv(checkout)
    wheels = checkout.parent / "wheels"
    (wheels / "tinyserve-1.0-py3-none-any.whl").write_bytes((wheels / "torch-2.0-py3-none-any.whl").read_bytes())
    with pytest.raises(AssertionError, match=r"(?s)Hash mismatch.*the installation failed"):
        run_install(checkout)
