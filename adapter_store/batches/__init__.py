"""Batches: files of requests that are run when there is time."""
