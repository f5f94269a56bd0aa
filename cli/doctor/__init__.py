"""The checks of `loragate doctor`."""
