"""The certificate of the ports, from the settings to those who call them."""

import logging
from pathlib import Path

import pytest
from certificates import Authority, server_files
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from loragate.cli.doctor.certificates import check_certificates
from loragate.cli.doctor.finding import Status
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load
from loragate.cli.standalone.tls import check_tls, warn_about_tls
from loragate.gateway.connections.tls import ClientTls


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
        ({"tls_cert": cert, "tls_key": key, "tls_client_ca": key}, "has no certificate"),
        ({"tls_client_ca": cert}, "needs TLS"),
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


def found(**settings: object) -> list[tuple[Status, str]]:
    return [(each.status, f"{each.found} {each.advice}") for each in check_certificates(load(**settings))]


def test_doctor_finds_nothing_on_ports_of_this_machine_and_warns_about_open_ones() -> None:
    assert found() == []
    assert [status for status, _ in found(host="0.0.0.0")] == [Status.WARN]


@pytest.mark.parametrize(
    ("days", "status", "said"),
    [
        ((-2, -1), Status.FAIL, "expired on"),
        ((1, 20), Status.FAIL, "is valid from"),
        ((-1, 5), Status.WARN, "expires in 4 days"),
        ((-1, 40), Status.OK, "39 days left"),
    ],
)
def test_doctor_reads_how_long_a_certificate_is_valid(
    tmp_path: Path, days: tuple[int, int], status: Status, said: str
) -> None:
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    Authority().write(cert, key, "llm.example.org", days=days)
    [(judged, text)] = found(tls_cert=cert, tls_key=key)
    assert (judged, said in text) == (status, True), text


@pytest.mark.parametrize(
    ("names", "settings", "status"),
    [
        (["llm.example.org"], {"host": "llm.example.org"}, Status.OK),
        (["llm.example.org"], {"host": "0.0.0.0"}, Status.OK),
        (["llm.example.org"], {"host": "192.0.2.1"}, Status.WARN),
        (["*.example.org"], {"panel": {"public_url": "https://panel.example.org"}}, Status.OK),
        (["*.example.org"], {"panel": {"public_url": "https://a.panel.example.org"}}, Status.WARN),
        (["llm.example.org"], {"panel": {"hosts": ["gpu-box.lan"]}}, Status.WARN),
        ([], {}, Status.FAIL),
    ],
)
def test_doctor_compares_the_names(
    tmp_path: Path, names: list[str], settings: dict[str, object], status: Status
) -> None:
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    Authority().write(cert, key, *names)
    [(judged, text)] = found(tls_cert=cert, tls_key=key, **settings)
    assert judged is status, text


def test_doctor_checks_the_key_and_the_authority_of_clients(tmp_path: Path) -> None:
    cert, key, ca = server_files(tmp_path)
    expired = tmp_path / "expired.pem"
    expired.write_bytes(Authority(days=(-2, -1)).pem)
    assert [status for status, _ in found(tls_cert=cert, tls_key=key, tls_client_ca=ca)] == [Status.OK, Status.OK]
    assert found(tls_cert=cert, tls_key=key, tls_client_ca=expired)[1][0] is Status.FAIL
    Authority().write(tmp_path / "another.pem", tmp_path / "another.key", "localhost")
    [(status, text)] = found(tls_cert=cert, tls_key=tmp_path / "another.key")
    assert (status, "cannot be used" in text) == (Status.FAIL, True)


def test_a_certificate_that_ends_soon_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"
    for days, said in (((-2, -1), "HAS EXPIRED"), ((-1, 5), "expires in 4 days")):
        Authority().write(cert, key, "llm.example.org", days=days)
        with caplog.at_level(logging.WARNING):
            warn_about_tls(load(tls_cert=cert, tls_key=key))
        assert said in caplog.records[-1].getMessage()
