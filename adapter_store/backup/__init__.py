"""Backups of the installation, and their restoration."""
