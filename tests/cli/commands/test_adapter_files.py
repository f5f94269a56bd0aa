"""`loragate adapters upload-all|import|download|export-merged|check` against a gateway."""

import asyncio
import json
from pathlib import Path

import pytest
from huggingface_hub import constants
from signed_adapters import new_key, signature_of, write_public_key

from loragate.adapter_store.signatures.config import Require, SignatureConfig, SignerConfig
from loragate.adapter_store.signatures.policy import load_policy
from loragate.cli.client.http.connect import as_tenant
from loragate.cli.client.imports import with_commit
from loragate.cli.client.transfer import parts
from loragate.cli.errors import CliError
from loragate.gateway.config.imports import ImportConfig
from tests.cli.command_runner import as_new_tenant, run
from tests.cli.conftest import SharedGateway
from tests.cli.dropping_proxy import dropping_proxy
from tests.cli.running import real_gateway, write_adapter
from tests.gateway.fake_hub import COMMIT, fake_hub
from tests.gateway.running_gateway import ADMIN_KEY

FILES = ("adapter_config.json", "adapter_model.safetensors")


def rows(stdout: str) -> list[list[str]]:
    return [line.split("\t") for line in stdout.splitlines()]


@pytest.mark.usefixtures("tenant")
def test_many_uploads_at_once_and_again(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    for seed, name in enumerate(("support", "french/checkpoint 1", "french/checkpoint-2")):
        write_adapter(root / name, seed=seed)
    write_adapter(root / "poisoned", poison=True)
    write_adapter(root / "pickled")
    (root / "pickled/adapter_model.safetensors").rename(root / "pickled/adapter_model.bin")

    first = run("adapters", "upload-all", str(root), "--alias", "nightly", status=1)
    found = {row[1]: row[2:4] for row in rows(first.stdout)}
    assert found == {
        "french-checkpoint-1": ["uploaded", "1"],
        "french-checkpoint-2": ["uploaded", "1"],
        "pickled": ["rejected", "-"],
        "poisoned": ["rejected", "-"],
        "support": ["uploaded", "1"],
    }
    assert "NaN" in first.stdout
    assert "is a pickle" in first.stdout
    assert "3 uploaded, 0 unchanged, 2 rejected" in first.stderr

    for name in ("poisoned", "pickled"):
        for file in (root / name).iterdir():
            file.unlink()
    write_adapter(root / "support", seed=9)
    again = json.loads(run("adapters", "upload-all", str(root), "--json").stdout)
    assert [(row["name"], row["status"], row["version"]) for row in again] == [
        ("french-checkpoint-1", "unchanged", 1),
        ("french-checkpoint-2", "unchanged", 1),
        ("support", "uploaded", 2),
    ]


@pytest.mark.usefixtures("tenant")
def test_a_folder_without_adapters_and_one_with_a_duplicate_name(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    root.mkdir()
    assert "no folder with" in run("adapters", "upload-all", str(root), status=2).stderr
    for name in ("a b", "a-b"):
        write_adapter(root / name)
    assert "would both be called a-b" in run("adapters", "upload-all", str(root), status=2).stderr


@pytest.mark.usefixtures("tenant")
def test_downloaded_files_equal_the_uploaded_ones(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "bot")
    run("adapters", "upload", str(folder))
    assert run("adapters", "download", "bot", "--version", "1").stdout == "bot-1\n"
    assert all((tmp_path / "bot-1" / file).read_bytes() == (folder / file).read_bytes() for file in FILES)
    assert sorted(path.name for path in (tmp_path / "bot-1").iterdir()) == sorted(FILES)
    assert "exists already" in run("adapters", "download", "bot", "--version", "1", status=2).stderr
    assert "version" in run("adapters", "download", "bot", "--version", "7", "--output", "x", status=1).stderr
    assert list((tmp_path / "x").iterdir()) == []


def test_a_merged_export_appears_once_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = tmp_path / "models" / "merged"
    with real_gateway(tmp_path, merged_exports=True) as url:
        as_new_tenant(url, monkeypatch)
        run("adapters", "upload", str(write_adapter(tmp_path / "bot")))
        export = ("adapters", "export-merged")
        assert "lacks the scope 'export'" in run(*export, "bot:1", str(merged), status=1).stderr
        assert list(merged.parent.iterdir()) == []
        scopes = ("--scope", "export", "--scope", "adapters:read")
        key = run("keys", "create", "acme", *scopes, "--admin-key", ADMIN_KEY).stdout.strip()
        monkeypatch.setenv("LORAGATE_API_KEY", key)
        assert run(*export, "bot", str(merged)).stdout == f"{merged}\n"
        assert (merged / "config.json").read_bytes() == b"{}"
        assert (merged / "model.safetensors").stat().st_size == 3 << 20
        assert list(merged.parent.iterdir()) == [merged]
        assert "exists already" in run(*export, "bot:1", str(merged), status=2).stderr
        assert "number" in run(*export, "bot:x", str(tmp_path / "x"), status=2).stderr


@pytest.mark.usefixtures("tenant")
def test_a_check_reports_what_an_upload_would(tmp_path: Path, shared_gateway: SharedGateway) -> None:
    here = ("--data-dir", str(shared_gateway.folder))
    good, bad = write_adapter(tmp_path / "bot"), write_adapter(tmp_path / "bad", poison=True)
    checked = json.loads(run("adapters", "check", str(good), "--json", *here).stdout)[0]
    uploaded = json.loads(run("adapters", "upload", str(good), "--json").stdout)[0]
    assert {name: checked[name] for name in ("digest", "rank", "size_bytes", "base_model")} == {
        name: uploaded[name] for name in ("digest", "rank", "size_bytes", "base_model")
    }
    words = run("adapters", "check", str(bad), *here, status=1).stderr
    assert words.strip() in run("adapters", "upload", str(bad), status=1).stderr
    assert "lora_B" in words


def test_a_check_needs_a_base_model(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "bot")
    assert "start the server once" in run("adapters", "check", str(folder), status=1).stderr


async def test_an_import_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_hub() as hub:
        hub.offer("acme/poet", write_adapter(tmp_path / "poet"))
        with real_gateway(tmp_path, imports=ImportConfig(hub=hub.url, hosts=())) as url:
            await asyncio.to_thread(as_new_tenant, url, monkeypatch)
            source = ("adapters", "import", f"hf://acme/poet@{COMMIT}", "--name", "poet")
            assert "HF_TOKEN is not set" in (await asyncio.to_thread(run, *source, "--use-hf-token", status=2)).stderr
            monkeypatch.setenv("HF_TOKEN", "hf_secret")
            done = await asyncio.to_thread(run, *source, "--use-hf-token", "--alias", "canary")
            assert rows(done.stdout)[0][:3] == ["poet", "1", "canary"]
            assert {asked.headers["authorization"] for asked in hub.asked} == {"Bearer hf_secret"}
            hub.replies.clear()
            caught = await asyncio.to_thread(run, *source, status=1)
            assert "has no adapter_config.json at this commit" in caught.stderr


async def test_an_import_without_a_commit_takes_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_hub() as hub:
        hub.offer("acme/poet", write_adapter(tmp_path / "poet"))
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)  # which HF_ENDPOINT sets when a process starts
        for source in ("hf://acme/poet", "hf://acme/poet@main", "hf://acme/poet/bots@main"):
            pinned = f"{source.partition('@')[0]}@{COMMIT}"
            assert await asyncio.to_thread(with_commit, source, None) == pinned
            assert await asyncio.to_thread(with_commit, pinned, None) == pinned
        assert with_commit("s3://bucket/poet", None) == "s3://bucket/poet"
        assert {each.headers.get("authorization") for each in hub.asked} == {None}
        await asyncio.to_thread(with_commit, "hf://acme/poet", "hf_secret")
        assert hub.asked[-1].headers["authorization"] == "Bearer hf_secret"
        for wrong in ("hf://acme/none", "hf://acme/poet@v1", "hf://acme/--@main"):
            with pytest.raises(CliError, match="no commit of hf://"):
                await asyncio.to_thread(with_commit, wrong, None)


def test_a_large_adapter_survives_connections_that_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SMALL_BYTES", 1000)
    monkeypatch.setattr(parts, "PART_BYTES", 2000)
    folder = write_adapter(tmp_path / "bot")
    with real_gateway(tmp_path) as url:
        as_new_tenant(url, monkeypatch)
        with dropping_proxy(url, after=1500, drops=3) as proxy:
            monkeypatch.setenv("LORAGATE_BASE_URL", proxy.url)
            assert rows(run("adapters", "upload", str(folder), "--alias", "canary").stdout)[0][:2] == ["bot", "1"]
            assert proxy.drops == 0
        monkeypatch.setenv("LORAGATE_BASE_URL", url)
        adapter = json.loads(run("adapters", "show", "bot").stdout)
        assert (adapter["latest_version"], list(adapter["aliases"])) == (1, ["canary"])
        run("adapters", "download", "bot", "--version", "1", "--output", "back")
        assert all((tmp_path / "back" / file).read_bytes() == (folder / file).read_bytes() for file in FILES)
        with as_tenant(None, None, tmp_path) as api:
            assert list(api.list_all("/v1/files")) == []


def test_a_connection_that_never_returns_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SMALL_BYTES", 1000)
    monkeypatch.setattr(parts, "_MAX_ATTEMPTS", 2)
    folder = write_adapter(tmp_path / "bot")
    with real_gateway(tmp_path) as url:
        as_new_tenant(url, monkeypatch)
        with dropping_proxy(url, after=1500, drops=1000) as proxy:
            monkeypatch.setenv("LORAGATE_BASE_URL", proxy.url)
            assert "was lost" in run("adapters", "upload", str(folder), status=1).stderr
        monkeypatch.setenv("LORAGATE_BASE_URL", url)
        assert run("adapters", "list").stdout == ""


@pytest.mark.parametrize("small_bytes", [1 << 20, 1000])
def test_a_signature_is_sent_with_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int) -> None:
    monkeypatch.setattr(parts, "SMALL_BYTES", small_bytes)
    folder, key = write_adapter(tmp_path / "bot"), new_key()
    (folder / "adapter_config.json").write_bytes((folder / "adapter_config.json").read_bytes() + b"\r\n")
    signer = SignerConfig("acme", public_key=write_public_key(tmp_path / "key.pub", key))
    policy = load_policy(SignatureConfig(Require.ALWAYS, (signer,)))
    with real_gateway(tmp_path, signatures=policy) as url:
        as_new_tenant(url, monkeypatch)
        unsigned = run("adapters", "upload", str(folder), status=1)
        assert "must be signed by one of acme" in unsigned.stderr
        (folder / "model.sig").write_bytes(signature_of({name: (folder / name).read_bytes() for name in FILES}, key))
        run("adapters", "upload", str(folder))
        assert rows(run("adapters", "versions", "bot").stdout)[0][6] == "acme"
