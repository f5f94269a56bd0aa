"""A certificate authority for the links between engines and their clients, and the certificates that it signs."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loragate.cli.data_dir.private_file import replace_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY = "ca"
CLIENT = "client"
_AUTHORITY_DAYS = 3650
_CLOCK_SKEW = datetime.timedelta(days=1)  # a certificate is valid from this long ago: some machines' clocks are late


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """The folder of an authority: `ca.pem` and `ca.key`, and a `.pem` and a `.key` for each certificate."""

    folder: Path

    def cert(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def make_authority(self) -> bool:
        """Make the authority unless there is one; return whether it was made.

        Raise OSError, or ValueError if one of its files is missing.
        """
        exist = [each.exists() for each in (self.cert(AUTHORITY), self.key(AUTHORITY))]
        if all(exist):
            return False
        if any(exist):
            raise ValueError(f"{self.folder} has only one of ca.pem and ca.key: restore the other, or remove it")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _named("loragate's links to engines")
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = _builder(name, name, key, key, _AUTHORITY_DAYS, authority=True)
        self._write(AUTHORITY, builder.add_extension(usage, critical=True), key, key)
        return True

    def issue(self, file: str, names: list[str], *, days: int, server: bool) -> None:
        """Write a certificate for these names and its key, in place of earlier ones. Raise OSError or ValueError."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority_key = load_pem_private_key(self.key(AUTHORITY).read_bytes(), None)
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey), "make_authority made it"
        authority = x509.load_pem_x509_certificate(self.cert(AUTHORITY).read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_named(names[0]), authority.subject, key, authority_key, days, authority=False)
            .add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        )
        self._write(file, builder, key, authority_key)

    def _write(
        self,
        file: str,
        builder: "x509.CertificateBuilder",
        key: "ec.EllipticCurvePrivateKey",
        authority_key: "ec.EllipticCurvePrivateKey",
    ) -> None:
        from cryptography.hazmat.primitives import hashes, serialization

        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        certificate = builder.sign(authority_key, hashes.SHA256()).public_bytes(pem)
        replace_private(self.key(file), secret)
        replace_private(self.cert(file), certificate)


def _builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "ec.EllipticCurvePrivateKey",
    issuer_key: "ec.EllipticCurvePrivateKey",
    days: int,
    *,
    authority: bool,
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _named(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
