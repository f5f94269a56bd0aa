"""What memory is left, in bytes."""

import os

import torch


def free_host_memory() -> int:
    """Pages that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_device_memory(device: torch.device) -> int:
    """Of a GPU, its own, with what torch holds of it and does not use; a CPU's is the host's."""
    if device.type == "cpu":
        return free_host_memory()
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held
