"""Tenants' files, and uploads in parts."""
