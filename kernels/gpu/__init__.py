"""Kernels for GPUs, in Triton. Importing the modules of this package needs triton; on a CPU they run in its
interpreter (`TRITON_INTERPRET=1`), for tests."""
