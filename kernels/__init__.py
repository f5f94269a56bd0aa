"""Kernels for GPUs (Triton) and CPUs (numba), each with a torch reference that defines its result."""
