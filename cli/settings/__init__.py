"""The settings of every part: model, sources and names."""
