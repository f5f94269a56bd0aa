"""Execution of a step on the device: packing, the forward pass, CUDA graphs, read-back."""
