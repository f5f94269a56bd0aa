"""Text to token ids and back: chat templates, tokenising, incremental detokenising, stop strings."""
