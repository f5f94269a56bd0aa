"""The certificate that a server's own clients show to it where clients must have one: commands, panel, supervisor."""

from loragate.cli.data_dir.private_file import replace_private
from loragate.cli.data_dir.x509 import builder, named, new_key, pem_of, signed
from loragate.cli.settings.model import Settings

FILE_NAME = "client.pem"
_DAYS = 3650  # of a file that each start replaces


def with_client_certificate(settings: Settings) -> Settings:
    """Return the settings with a client certificate, made now unless one is configured or none is needed."""
    if settings.tls_client_ca is None or settings.client_cert is not None:
        return settings
    file = settings.data_dir / FILE_NAME
    replace_private(file, _self_signed())
    return settings.model_copy(update={"client_cert": file})


def _self_signed() -> bytes:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key, name = new_key(), named("loragate's own clients")
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    return pem_of(key) + signed(builder(name, name, key, _DAYS).add_extension(use, critical=False), key)
