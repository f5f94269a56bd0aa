"""The check of the ports' certificate: it matches its key, is valid for long enough, and names what clients use."""

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.tls import RENEWAL_DAYS, check_tls, days_left, first_certificate
from loragate.engine.link_security import is_local

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_TLS, _CLIENTS = "TLS", "client CA"
_RENEW = "renew it and replace the file: new connections use it without a restart"


def check_certificates(settings: Settings) -> list[Finding]:
    """Check the certificate and the authorities of clients. Nothing is found on ports of this machine without TLS."""
    try:
        check_tls(settings)
    except CliError as error:
        return [fail(_TLS, error.message, "correct the settings, or the files")]
    if settings.tls is None:
        if is_local(f"{settings.host}:0"):
            return []
        found = f"none, and other machines reach {settings.host}: keys, prompts and answers cross the network readable"
        return [warn(_TLS, found, "set LORAGATE_TLS_CERT and LORAGATE_TLS_KEY, or listen on 127.0.0.1 behind a proxy")]
    findings = [_validity(_TLS, settings.tls.cert) or _names(settings.tls.cert, _wanted(settings))]
    if settings.tls.client_ca is not None:
        ends = _validity(_CLIENTS, settings.tls.client_ca)
        findings.append(ends or ok(_CLIENTS, f"clients need a certificate of {settings.tls.client_ca}"))
    return findings


def _validity(subject: str, path: Path) -> Finding | None:
    certificate = first_certificate(path)
    left = days_left(certificate)
    if left < 0:
        return fail(subject, f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d}", _RENEW)
    if certificate.not_valid_before_utc > datetime.datetime.now(datetime.UTC):
        found = f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on only"
        return fail(subject, found, "wait, or correct this machine's clock")
    if left < RENEWAL_DAYS:
        return warn(subject, f"{path} expires in {left} days", _RENEW)
    return None


def _names(path: Path, wanted: Iterable[str]) -> Finding:
    certificate = first_certificate(path)
    names = _names_of(certificate)
    if not names:
        advice = "clients compare only its subject alternative names: have it issued with the server's name there"
        return fail(_TLS, f"{path} names no server", advice)
    missing = [name for name in wanted if not any(_covers(each, name) for each in names)]
    found = f"{path} for {', '.join(names)}, {days_left(certificate)} days left"
    if missing:
        advice = "clients that use these names reject it: have it issued for them, too, or correct the settings"
        return warn(_TLS, f"{found}; not for {', '.join(missing)}", advice)
    return ok(_TLS, found)


def _wanted(settings: Settings) -> list[str]:
    """Return the names and addresses under which clients reach the ports, as far as the settings tell."""
    public = urlsplit(settings.panel.public_url or "").hostname
    listening = settings.host
    if is_local(f"{listening}:0") or listening in ("", "0.0.0.0", "::"):  # noqa: S104 (compared)
        listening = ""
    return list(dict.fromkeys(each.lower() for each in (public, *settings.panel.hosts, listening) if each))


def _names_of(certificate: "Certificate") -> list[str]:
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return []
    addresses = (str(each) for each in names.get_values_for_type(IPAddress))
    return [*(each.lower() for each in names.get_values_for_type(DNSName)), *addresses]


def _covers(name: str, wanted: str) -> bool:
    """Return whether a certificate's name stands for `wanted`; a star stands for one label."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(wanted)
    except ValueError:
        pass
    if name.startswith("*."):
        return name[2:] == wanted.partition(".")[2]
    return name == wanted
