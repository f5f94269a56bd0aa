"""Uploads, downloads and bulk transfers."""
