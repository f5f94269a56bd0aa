"""A client of the HTTP API that turns every failure into a CliError."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.gateway.connections.tls import ANY_VALID, ClientTls

_CONNECT_SECONDS = 5.0
_RESPONSE_SECONDS = 300.0  # long enough for a long completion, or the check of a large upload
_PAGE = 100
_SET_CERTIFICATE = "set LORAGATE_CLIENT_CERT to a PEM file with yours and its key"
# Python's event loops close a connection whose certificate they reject without sending the alert.
_MAY_DEMAND_CERTIFICATE = (
    "; if the server has LORAGATE_TLS_CLIENT_CA, it serves only clients with a certificate that it trusts: "
    f"{_SET_CERTIFICATE}"
)


class ConnectionFailed(CliError):
    """The server could not be reached, or its response was lost: the request may have been carried out or not."""


class NotFound(CliError):
    """The resource does not exist, or is not visible to this caller."""


class Api:
    """The API of one server with one key. Every method raises CliError with the server's message and request id."""

    def __init__(self, base_url: str, key: str, tls: ClientTls = ANY_VALID) -> None:
        self._base_url = base_url
        self._client = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(_RESPONSE_SECONDS, connect=_CONNECT_SECONDS),
            verify=verification(tls),
        )

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, **request: Any) -> Any:
        """Send a request and return the JSON of the response; None for an empty one."""
        with self.stream(method, path, **request) as response:
            content = response.read()
            return response.json() if content else None

    def list_all(self, path: str, **filters: str | None) -> Iterator[dict[str, Any]]:
        """Yield all items of a list, page by page. A filter that is None is left out."""
        given = {name: value for name, value in filters.items() if value is not None}
        after: str | None = None
        while True:
            page = self.call("GET", path, params={"limit": _PAGE, **given, **({"after": after} if after else {})})
            yield from page["data"]
            after = page.get("last_id")
            if not page.get("has_more") or after is None:
                return

    @contextmanager
    def stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Send a request and yield the response before its body is read."""
        begun = False
        try:
            with self._client.stream(method, path, **request) as response:
                begun = True
                if response.is_error:
                    response.read()
                    kind = NotFound if response.status_code == httpx.codes.NOT_FOUND else CliError
                    raise kind(error_message(response))
                yield response
        except httpx.ConnectError as error:
            raise ConnectionFailed(
                _rejected_certificate(error, self._base_url)
                or f"no server responds at {self._base_url}: start one with `loragate serve`, or give its address "
                "with --base-url or LORAGATE_BASE_URL"
            ) from None
        except httpx.TimeoutException:
            raise ConnectionFailed(f"{self._base_url} did not respond in time") from None
        except httpx.TransportError as error:
            raise ConnectionFailed(
                _rejected_certificate(error, self._base_url)
                or f"the connection to {self._base_url} was lost: {error}"
                + ("" if begun or not self._base_url.startswith("https:") else _MAY_DEMAND_CERTIFICATE)
            ) from None


def verification(tls: ClientTls) -> ssl.SSLContext:
    """Return the context of a client. Raise CliError for certificates that cannot be used."""
    try:
        return tls.context()
    except (OSError, ValueError) as error:
        files = " and ".join(str(each) for each in (tls.server_cert, tls.client_cert) if each is not None)
        raise CliError(
            f"{files} (LORAGATE_TLS_CERT, LORAGATE_CLIENT_CERT) cannot be used: {error}; a client's file is PEM with "
            "the certificate and its key",
            BAD_SETTING,
        ) from None


def _rejected_certificate(error: httpx.TransportError, base_url: str) -> str | None:
    """Return what is wrong with the server's certificate, or with the one that it demands; None if nothing is."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {base_url} is not valid: {cause.verify_message}; give the server's name with "
            "--base-url, and the authority that signed it with SSL_CERT_FILE"
        )
    if any(alert in str(cause) for alert in ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")):
        return f"{base_url} serves only clients with a certificate that it trusts ({cause}): {_SET_CERTIFICATE}"
    return None


def error_message(response: httpx.Response) -> str:
    """Return the message of an error response, with the request's id."""
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"the server responded with status {response.status_code}"
    request_id = response.headers.get("x-request-id")
    return f"{message} (request {request_id})" if request_id else message


def path(*parts: str | int) -> str:
    """Join the parts with slashes, each quoted, because a name may contain a slash."""
    return "/" + "/".join(quote(str(part), safe="@") for part in parts)


def version_path(name: str, version: int | None) -> str:
    """Return the path of an adapter, or of one of its versions."""
    return path("v1", "adapters", name) if version is None else path("v1", "adapters", name, "versions", version)


def find_tenant(api: Api, id_or_name: str) -> dict[str, Any]:
    """Return the tenant with this id, else the one with this name. Raise CliError when there is none."""
    tenants = list(api.list_all("/admin/v1/tenants"))
    for field in ("id", "name"):
        for tenant in tenants:
            if tenant[field] == id_or_name:
                return tenant
    raise CliError(f"there is no tenant {id_or_name}: list the tenants with `loragate tenants list`")
