"""The check of the sandbox of training processes."""

from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.optional_dependencies import missing_finetune_packages
from loragate.cli.settings.model import Settings
from loragate.finetune.sandbox import SandboxMode, SandboxUnavailable, available

_SUBJECT = "training sandbox"
_SETTING = "LORAGATE_FINETUNE__SANDBOX"


def check_training(settings: Settings) -> list[Finding]:
    """Check what confines training processes. Nothing is checked where nothing is trained."""
    chosen = settings.finetune
    if not chosen.enabled or missing_finetune_packages():
        return []
    if chosen.sandbox is SandboxMode.OFF:
        return [ok(_SUBJECT, f"off ({_SETTING}): training processes can read what the server can")]
    try:
        sandbox = available(chosen.device, chosen.report_to)
    except SandboxUnavailable as error:
        advice = "install bubblewrap and allow user namespaces"
        if chosen.sandbox is SandboxMode.REQUIRED:
            return [fail(_SUBJECT, f"none: {error}", f"{advice}; {_SETTING} is required")]
        return [warn(_SUBJECT, f"none: {error}", f"{advice}: training processes can read what the server can")]
    network = "with a network for the trackers" if sandbox.network else "without a network"
    return [ok(_SUBJECT, f"bubblewrap, {network}; a training process sees its job, its data and the model")]
