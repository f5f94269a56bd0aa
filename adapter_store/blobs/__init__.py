"""Adapter bytes on disk or S3."""
