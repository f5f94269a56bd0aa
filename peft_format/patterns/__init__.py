"""Bounded matching of target patterns."""
