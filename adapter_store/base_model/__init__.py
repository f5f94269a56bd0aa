"""The engine's manifest of the base model, and its layout."""
