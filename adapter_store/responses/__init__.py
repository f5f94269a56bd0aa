"""Stored responses and conversations: sealed under a key of their tenant."""
