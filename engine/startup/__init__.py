"""From settings to a loaded, checked and budgeted engine core."""
