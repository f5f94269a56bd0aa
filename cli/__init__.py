"""The `loragate` command."""
