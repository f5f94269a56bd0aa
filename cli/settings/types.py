"""The types of single settings, each with its check."""

import ipaddress
import json
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    SecretStr,
)
from pydantic_settings import (
    NoDecode,
)

from loragate.adapter_store.auth.credentials import check_admin_key
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.limits import MAX_LIMIT
from loragate.adapter_store.names import check_label
from loragate.gateway.config.gateway import check_origins
from loragate.gateway.reasoning.detection import FORMATS as REASONING_FORMATS
from loragate.gateway.tools.formats.detection import FORMATS

NONE = "none"  # how None is written where the default is something else


def _admin_key(secret: SecretStr) -> SecretStr:
    try:
        check_admin_key(secret.get_secret_value())
    except Invalid as error:
        raise ValueError(error.message) from None
    return secret


def _secret_key(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < 16:
        raise ValueError("needs at least 16 characters")
    return secret


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("must be of the form http://host:port")
    return url


def _redis_url(url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must be of the form redis://host:port, rediss://host:port or unix:///path")
    return url


def _label(text: str) -> str:
    try:
        return check_label(text)
    except Invalid as error:
        raise ValueError(error.message.removeprefix("`name` ")) from None


def _tool_parser(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"must be one of {', '.join(FORMATS)}")
    return name


def _reasoning_parser(name: str) -> str:
    if name not in REASONING_FORMATS:
        raise ValueError(f"must be one of {', '.join(REASONING_FORMATS)}")
    return name


def _parse_list(given: Any) -> Any:
    """Parse a text, as in the environment: comma-separated names, or JSON."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("["):
        return json.loads(given)
    return [name.strip() for name in given.split(",") if name.strip()]


def _networks(given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        try:
            ipaddress.ip_network(each)
        except ValueError:
            raise ValueError(f"must be addresses or networks such as 10.0.0.0/8, got {each!r}") from None
    return given


def _none_if_named(given: Any) -> Any:
    return None if given == NONE else given


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _origins(given: tuple[str, ...]) -> tuple[str, ...]:
    try:
        check_origins(given)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("cors_origins ")) from None
    return given


Port = Annotated[int, Field(ge=0, le=65535)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
EngineId = Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")]
Label = Annotated[str, AfterValidator(_label)]
Limit = Annotated[NonNegativeInt, Field(le=MAX_LIMIT)] | Literal["unlimited"]
ToolParser = Annotated[str, AfterValidator(_tool_parser)]
ReasoningParser = Annotated[str, AfterValidator(_reasoning_parser)]
Reporter = Literal["tensorboard", "mlflow", "wandb"]
Reporters = Annotated[tuple[Reporter, ...], NoDecode, BeforeValidator(_parse_list)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_list)]
Networks = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_list), AfterValidator(_networks)]
Origins = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_parse_list), AfterValidator(_origins)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
AdminKey = Annotated[SecretStr, AfterValidator(_admin_key)]
SecretKey = Annotated[SecretStr, AfterValidator(_secret_key)]
SecretKeys = Annotated[tuple[SecretKey, ...], NoDecode, BeforeValidator(_parse_list)]
HubUrl = Annotated[str | None, BeforeValidator(_none_if_named)]
