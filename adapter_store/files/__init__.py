"""Tenants' files and multipart uploads."""
