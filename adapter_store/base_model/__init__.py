"""The manifest of the base model and its layout."""
