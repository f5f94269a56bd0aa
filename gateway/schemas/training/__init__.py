"""Bodies of the training API, as the Tinker SDK sends them."""
