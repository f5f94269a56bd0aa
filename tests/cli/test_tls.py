"""The certificate of the ports, from the settings to those who call them."""

import logging
from pathlib import Path

import pytest
from certificates import server_files
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.standalone.tls import check_tls, warn_about_tls
from loragate.gateway.http.tls import ClientTls


def test_a_certificate_that_the_pinned_one_signed_is_another(tmp_path: Path) -> None:
    """Only the first certificate of a file counts, not the authority's behind it."""
    cert, _, ca = server_files(tmp_path)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(cert.read_bytes() + ca.read_bytes())
    both, alone = ClientTls(chain).context(), ClientTls(cert).context()
    assert both.get_ca_certs(binary_form=True) == alone.get_ca_certs(binary_form=True)
    assert both.cert_store_stats() == alone.cert_store_stats()


def test_bad_certificates_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, key, _ = server_files(tmp_path)
    _, other_key, _ = server_files(tmp_path / "other")
    check_tls(load(tls_cert=cert, tls_key=key))
    check_tls(load())
    for settings, said in (
        ({"tls_cert": cert}, "belong together"),
        ({"tls_key": key}, "belong together"),
        ({"tls_cert": cert, "tls_key": other_key}, "cannot be used"),
        ({"tls_cert": cert, "tls_key": tmp_path / "missing"}, "No such file"),
        ({"tls_cert": key, "tls_key": cert}, "cannot be used"),
    ):
        with pytest.raises(CliError, match=said) as caught:
            check_tls(load(**settings))
        assert "LORAGATE_TLS_CERT" in caught.value.message


@pytest.mark.parametrize(
    ("host", "tls", "warned"),
    [("127.0.0.1", False, 0), ("::1", False, 0), ("0.0.0.0", False, 1), ("192.0.2.1", False, 1), ("::", True, 0)],
)
def test_open_ports_without_tls_are_warned_about(
    host: str, tls: bool, warned: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key, _ = server_files(tmp_path)
    with caplog.at_level(logging.WARNING):
        warn_about_tls(load(host=host, **({"tls_cert": cert, "tls_key": key} if tls else {})))
    assert len(caplog.records) == warned
    assert all("LORAGATE_TLS_CERT" in record.getMessage() for record in caplog.records)


def test_a_password_is_not_asked_for(tmp_path: Path) -> None:
    cert, key, _ = server_files(tmp_path)
    locked = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(locked.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")))
    with pytest.raises(CliError, match="without a password"):
        check_tls(load(tls_cert=cert, tls_key=key))
