"""The base model: its checkpoint, its traced modules and the manifest."""
