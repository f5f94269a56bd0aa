"""`loragate backup` and `loragate restore`."""
