"""Everything the demo model knows, as data."""
