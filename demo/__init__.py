"""The offline demo: a tiny base model, tenants and adapters, trained on this machine."""

from loragate.demo.assets import DemoAssets, DemoTenant
from loragate.demo.build import build
from loragate.demo.provision import ProvisionError, provision

__all__ = ["DemoAssets", "DemoTenant", "ProvisionError", "build", "provision"]
