"""A private certificate authority, and the certificates that it signs."""

import datetime
import socket
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates of servers and clients. `days` are those of its own validity, counted from now."""

    def __init__(self, days: tuple[float, float] = (-1, 90)) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = _builder(_NAME, self._key, self._key, days, authority=True)
        self.pem = certificate.add_extension(usage, critical=True).sign(self._key, hashes.SHA256()).public_bytes(_PEM)

    def issue(self, *names: str, days: tuple[float, float] = (-1, 90)) -> tuple[bytes, bytes]:
        """Return a certificate for these names, and its key, in PEM form."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(names[0] if names else "nameless", key, self._key, days, authority=False)
        if names:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        secret = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM), secret

    def write(self, cert: Path, key: Path, *names: str, days: tuple[float, float] = (-1, 90)) -> None:
        """Issue a certificate into these files; they may be one, which then has both."""
        certificate, secret = self.issue(*names, days=days)
        key.write_bytes(secret)
        cert.write_bytes(certificate + (secret if cert == key else b""))


_NAME = "the tests' authority"


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server context with a certificate for `name`, and a client context that trusts its issuer."""
    authority, chain = Authority(), folder / "chain.pem"
    authority.write(chain, chain, name)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return server, ssl.create_default_context(cadata=authority.pem.decode())


def server_files(folder: Path, name: str = "localhost") -> tuple[Path, Path, Path]:
    """Return the files of a server's certificate and key, and of the authority that signed it."""
    authority = Authority()
    cert, key, ca = folder / "tls.pem", folder / "tls.key", folder / "ca.pem"
    authority.write(cert, key, name)
    ca.write_bytes(authority.pem)
    return cert, key, ca


def presented(address: str) -> str:
    """Return the certificate that a port presents to a new connection, in PEM form."""
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE
    anything.set_alpn_protocols(["h2"])  # without which gRPC closes the connection
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as plain, anything.wrap_socket(plain) as connection:
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")


def _builder(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: tuple[float, float],
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now + datetime.timedelta(days=each) for each in days)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(_NAME))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
