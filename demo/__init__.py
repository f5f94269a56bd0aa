"""The offline demo: a tiny base model, tenants and adapters, shipped as data and made by a recipe."""

from loragate.demo.assets import DemoAssets, DemoTenant, shipped_assets, shipped_mismatch
from loragate.demo.build import BuildError, build
from loragate.demo.provision import ProvisionError, provision

__all__ = [
    "BuildError",
    "DemoAssets",
    "DemoTenant",
    "ProvisionError",
    "build",
    "provision",
    "shipped_assets",
    "shipped_mismatch",
]
