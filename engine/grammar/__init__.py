"""Grammars for structured output, compiled and matched by llguidance."""
