"""Which optional packages are installed, and how to install those that are not."""

from importlib.util import find_spec

INSTALL_FINETUNE = "pip install 'loragate[finetune]'"
INSTALL_PANEL = "pip install 'loragate[panel]'"
_FINETUNE_PACKAGES = ("torch", "transformers", "peft", "trl", "datasets", "bitsandbytes")


def missing_finetune_packages() -> list[str]:
    """Return the packages that training needs and that are not installed."""
    return [name for name in _FINETUNE_PACKAGES if find_spec(name) is None]


def is_panel_installed() -> bool:
    """Return whether the packages of the web panel are installed."""
    return find_spec("nicegui") is not None
