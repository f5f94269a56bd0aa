"""The web panel."""
