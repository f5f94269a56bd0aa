"""Charts, chips, tables and formats."""
