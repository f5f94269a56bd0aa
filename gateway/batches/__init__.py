"""Batches: a process runs their lines beside the requests that it serves."""
