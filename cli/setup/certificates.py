"""A certificate authority for the links between engines and their clients, and the certificates that it signs."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loragate.cli.data_dir.private_file import replace_private
from loragate.cli.data_dir.x509 import builder, named, new_key, pem_of, signed

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY = "ca"
CLIENT = "client"
_AUTHORITY_DAYS = 3650


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

        key, name = new_key(), named("loragate's links to engines")
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        made = builder(name, name, key, _AUTHORITY_DAYS, authority=True).add_extension(usage, critical=True)
        self._write(AUTHORITY, made, key, key)
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
        key = new_key()
        use = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        made = (
            builder(named(names[0]), authority.subject, key, days)
            .add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        )
        self._write(file, made, key, authority_key)

    def _write(
        self,
        file: str,
        made: "x509.CertificateBuilder",
        key: "ec.EllipticCurvePrivateKey",
        authority_key: "ec.EllipticCurvePrivateKey",
    ) -> None:
        from cryptography import x509

        made = made.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        replace_private(self.key(file), pem_of(key))
        replace_private(self.cert(file), signed(made, authority_key))


def _alternative(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
