"""Conversion of token ids to text: incremental detokenization, stop strings, and the base model's text properties."""
