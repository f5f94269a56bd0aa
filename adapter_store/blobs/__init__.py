"""Bytes of adapters and files, on disk or S3."""
