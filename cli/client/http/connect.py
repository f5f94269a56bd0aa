"""Opens the API as a tenant or as the operator."""

from pathlib import Path

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.server import find_admin_key, find_api_key, find_base_url
from loragate.cli.settings.load import load


def as_tenant(base_url: str | None, api_key: str | None, data_dir: Path | None, model: str | None = None) -> Api:
    """With a tenant's key; `model` picks among the demo's tenants when no key is given."""
    settings = load(base_url=base_url, api_key=api_key, data_dir=data_dir)
    return Api(find_base_url(settings), find_api_key(settings, model))


def as_operator(base_url: str | None, admin_key: str | None, data_dir: Path | None) -> Api:
    """With the admin key."""
    settings = load(base_url=base_url, admin_key=admin_key, data_dir=data_dir)
    return Api(find_base_url(settings), find_admin_key(settings))
