"""Checks of torch, the GPU, Triton and the kernels that the engine would use."""

import importlib.util
from importlib.metadata import version

from loragate.cli.doctor.finding import Finding, Status, fail, ok, warn
from loragate.cli.doctor.gpu_kernels import capability_finding, check_gpu_kernels


def check_accelerator() -> list[Finding]:
    """Check what an engine needs. Without torch, this machine can run a gateway but no engine."""
    if importlib.util.find_spec("torch") is None:
        return [warn("torch", "not installed", "enough for a gateway; an engine needs `pip install torch`")]
    try:
        return [_check_torch(), _check_gpu(), _check_triton(), _check_kernels()]
    except (ImportError, OSError) as error:
        return [fail("torch", f"cannot be imported: {error}", "reinstall the pinned version")]


def _check_torch() -> Finding:
    import torch

    return ok("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _check_gpu() -> Finding:
    import torch

    if torch.version.cuda is None:
        return warn(
            "GPU", "this torch is built for the CPU only", "on a machine with an NVIDIA GPU, install torch with CUDA"
        )
    if not torch.cuda.is_available():
        return warn("GPU", f"no GPU that CUDA {torch.version.cuda} can use", "models run on the CPU: choose small ones")
    properties = torch.cuda.get_device_properties(0)
    finding = capability_finding(properties.name, (properties.major, properties.minor))
    if finding.status is not Status.OK:
        return finding
    return ok("GPU", f"{finding.found}, {properties.total_memory / (1 << 30):.0f} GiB, CUDA {torch.version.cuda}")


def _check_triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return warn("Triton", "not installed", "only GPU kernels need it")
    return ok("Triton", version("triton"))


def _check_kernels() -> Finding:
    import torch

    if torch.cuda.is_available():
        return check_gpu_kernels(triton=importlib.util.find_spec("triton") is not None)
    if torch.backends.mkldnn.is_available():
        return ok("kernels", "CPU, linears packed by oneDNN")
    return warn("kernels", "CPU, plain linears", "a torch build with oneDNN is about twice as fast on this machine")
