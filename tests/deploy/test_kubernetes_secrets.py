"""deploy/kubernetes/secrets: make-secrets writes secrets that only their owner reads, and certificates that hold."""

import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from manifests import FOLDER, kustomization, variables
from secret_files import SECRET, made_secrets, make_secrets

from loragate.cli.settings.load import load


def shake_hands(folder: Path, name: str, files: str) -> None:
    """Connect a client that trusts ca.crt and expects a name with a server that has the files' certificate."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=folder / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
    server.load_cert_chain(folder / f"{files}.crt", folder / f"{files}.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_secrets_are_new_and_only_their_owner_reads_them(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made, other = made_secrets(tmp_path), made_secrets(tmp_path_factory.mktemp("other"))
    assert all(len(made[name]) >= 24 and made[name] != other[name] for name in made if SECRET.search(name))
    assert set(made) == set(other) == {name for name in made if SECRET.search(name)}
    assert (
        made["LORAGATE_DATABASE_URL"] == f"postgresql://loragate:{made['POSTGRES_PASSWORD']}@loragate-postgres/loragate"
    )
    assert made["LORAGATE_REDIS_URL"] == f"redis://:{made['REDIS_PASSWORD']}@loragate-redis:6379"
    assert "RANDOM" not in "".join(made.values())
    written = [path for path in tmp_path.iterdir() if path.suffix in (".env", ".crt", ".key")]
    assert len(written) == 9
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    sources = kustomization(tmp_path)["secretGenerator"]
    named = [each.partition("=")[2] or each for source in sources for each in source.get("files", source.get("envs"))]
    assert {path.name for path in written} - set(named) == {"ca.key"}
    assert all((tmp_path / name).exists() for name in named)


def test_settings_accept_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in made_secrets(tmp_path).items():
        if name.startswith("LORAGATE_"):
            monkeypatch.setenv(name, value)
    settings = load()
    assert settings.admin_key is not None
    assert settings.database_url is not None


def test_certificates_hold_for_their_names(tmp_path: Path) -> None:
    make_secrets(tmp_path, "llm.example.org")
    for name in ("loragate-gateway", "loragate-panel", "localhost", "llm.example.org"):
        shake_hands(tmp_path, name, "tls")
    shake_hands(tmp_path, "loragate-engine", "engine")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, "loragate-engine", "tls")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose|unsupported certificate"):
        shake_hands(tmp_path, "loragate-client", "client")


def test_another_run_renews_the_certificates_only(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    names = (
        "loragate.env",
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
        "engine.crt",
        "engine.key",
        "client.crt",
        "client.key",
    )
    before = {name: (tmp_path / name).read_bytes() for name in names}
    make_secrets(tmp_path)
    kept = {name for name in names if (tmp_path / name).read_bytes() == before[name]}
    assert kept == {"loragate.env", "ca.crt", "ca.key"}
    shake_hands(tmp_path, "localhost", "tls")


def test_what_it_writes_is_not_committed(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    written = [path.name for path in tmp_path.iterdir() if path.suffix in (".env", ".crt", ".key")]
    command = ["git", "check-ignore", *(f"deploy/kubernetes/secrets/{name}" for name in written)]
    ignored = subprocess.run(command, cwd=FOLDER.parent.parent, capture_output=True, text=True, check=True).stdout
    assert len(ignored.split()) == len(written) == 9


def test_it_is_plain_shell() -> None:
    script = FOLDER / "secrets" / "make-secrets"
    assert script.read_text().startswith("#!/bin/sh\n")
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", script], check=True)
    assert variables((FOLDER / "secrets" / "loragate.env.example").read_text().splitlines())
