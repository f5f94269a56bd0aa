"""PEFT's tensors as the device layout that kernels read."""
