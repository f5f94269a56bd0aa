"""Conversion of PEFT's tensors to the device layout that kernels read."""
