"""Tenants by id or by name."""

from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.refusal import Refusal


def find_tenant(api: Api, id_or_name: str) -> dict[str, Any]:
    """The tenant with this id or, when none has it, this name. Raises Refusal when there is none."""
    tenants = list(api.every("/admin/v1/tenants"))
    for field in ("id", "name"):
        for tenant in tenants:
            if tenant[field] == id_or_name:
                return tenant
    raise Refusal(f"there is no tenant {id_or_name}: `loragate tenants list` shows them")
