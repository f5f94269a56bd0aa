"""Certificates with keys of their own, and both as PEM files' content."""

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_SKEW = datetime.timedelta(days=1)  # a certificate is valid from this long ago: some machines' clocks are late


def new_key() -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def named(name: str) -> "x509.Name":
    """Return a subject or an issuer of this common name, of which X.509 keeps 64 characters."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def builder(
    subject: "x509.Name",
    issuer: "x509.Name",
    key: "ec.EllipticCurvePrivateKey",
    days: int,
    *,
    authority: bool = False,
) -> "x509.CertificateBuilder":
    """Return what builds a certificate that is valid for `days`; an authority's signs others, but no authorities."""
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
    )


def signed(made: "x509.CertificateBuilder", signer: "ec.EllipticCurvePrivateKey") -> bytes:
    """Return the certificate in PEM form."""
    from cryptography.hazmat.primitives import hashes, serialization

    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pem_of(key: "ec.EllipticCurvePrivateKey") -> bytes:
    """Return a key in PEM form, without a password."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
