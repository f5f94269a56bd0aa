"""Schemas of request bodies, with every limit on a single field."""
