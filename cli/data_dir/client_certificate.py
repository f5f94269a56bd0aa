"""The certificate that a server's own clients show to it where clients must have one: commands, panel, supervisor."""

import datetime

from loragate.cli.data_dir.private_file import replace_private
from loragate.cli.settings.model import Settings

FILE_NAME = "client.pem"
_LIFETIME = datetime.timedelta(days=3650)  # of a file that each start replaces


def with_client_certificate(settings: Settings) -> Settings:
    """Return the settings with a client certificate, made now unless one is configured or none is needed."""
    if settings.tls_client_ca is None or settings.client_cert is not None:
        return settings
    file = settings.data_dir / FILE_NAME
    replace_private(file, _self_signed())
    return settings.model_copy(update={"client_cert": file})


def _self_signed() -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loragate's own clients")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)
