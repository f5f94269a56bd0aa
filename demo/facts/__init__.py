"""The demo model's knowledge, as data."""
