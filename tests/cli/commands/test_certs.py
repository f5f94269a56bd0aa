"""`loragate certs`: the files that it makes."""

import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from typer.testing import CliRunner

from loragate.cli.main import app
from loragate.engine.server_tls import TlsFiles, server_context


def certs(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["certs", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def names_of(file: Path) -> list[object]:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    return [each.value for each in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def test_an_authority_and_certificates_that_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    output = certs(str(folder), "--engine", "gpu-1", "--engine", "10.0.0.7")
    assert sorted(each.name for each in folder.iterdir()) == [
        f"{name}.{kind}" for name in ("10.0.0.7", "ca", "client", "gpu-1") for kind in ("key", "pem")
    ]
    assert all(each.stat().st_mode & 0o077 == 0 for each in folder.iterdir())
    assert names_of(folder / "gpu-1.pem") == ["gpu-1"]
    assert names_of(folder / "10.0.0.7.pem") == [ipaddress.ip_address("10.0.0.7")]
    server_context(TlsFiles(folder / "gpu-1.pem", folder / "gpu-1.key", folder / "ca.pem"))
    client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client.load_cert_chain(folder / "client.pem", folder / "client.key")
    assert f"LORAGATE_ENGINE_CLIENT_CERT={folder}/client.pem" in output


def test_a_second_call_renews_with_the_same_authority(tmp_path: Path) -> None:
    certs(str(tmp_path), "--engine", "gpu-1")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    certs(str(tmp_path), "--engine", "gpu-1")
    changed = {file.name for file in tmp_path.iterdir() if file.read_bytes() != before[file.name]}
    assert changed == {"client.pem", "client.key", "gpu-1.pem", "gpu-1.key"}


def test_what_is_not_a_name_or_not_whole_is_rejected(tmp_path: Path) -> None:
    for name in ("ca", "client", "../gpu", ""):
        result = CliRunner().invoke(app, ["certs", str(tmp_path), "--engine", name])
        assert result.exit_code == 2
        assert "host name" in result.output
    certs(str(tmp_path))
    (tmp_path / "ca.key").unlink()
    result = CliRunner().invoke(app, ["certs", str(tmp_path)])
    assert result.exit_code == 2
    assert "only one of ca.pem and ca.key" in result.output
