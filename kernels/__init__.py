"""Triton kernels, each with a torch reference that says what it computes."""
